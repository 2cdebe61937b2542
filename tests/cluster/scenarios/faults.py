"""What users do while a cluster breaks: two sessions at once, and forward steps with known results."""

import threading

from . import common


def twins(task, options, count):
    """Two sessions of one graph on one master, ``count`` steps each, all but their first at the same time.

    Returns each thread's losses, or the class of the error that it got.
    """
    model = common.mlp(task)
    config = common.session_config(task, options)
    sessions = [common.v1.Session(task.target, graph=model.graph, config=config) for _ in range(2)]
    sessions[0].run(model.init)

    def step(number):
        return float(sessions[number].run(model.fetches["loss"])).hex()

    # The first step registers the graph; the other session could have done all its steps meanwhile.
    results = [[step(0)], [step(1)]]

    def steps(number):
        try:
            for _ in range(count - 1):
                results[number].append(step(number))
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
