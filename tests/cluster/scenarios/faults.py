"""What users do while a cluster breaks: two sessions at once, and forward steps with known results."""

import threading

from . import common


def twins(task, options, count):
    """Two sessions of one graph on one master, ``count`` forward and training steps each at the same time.

    Returns each thread's losses, or the class of the error that it got.
    """
    model = common.mlp(task)
    config = common.session_config(task, options)
    sessions = [common.v1.Session(task.target, graph=model.graph, config=config) for _ in range(2)]
    sessions[0].run(model.init)
    results = [[], []]

    def steps(number):
        try:
            for _ in range(count):
                results[number].append(float(sessions[number].run(model.fetches["loss"])).hex())
        except Exception as error:
            results[number].append(type(error).__name__)

    threads = [threading.Thread(target=steps, args=(number,), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for session in sessions:
        session.close()
    return results
