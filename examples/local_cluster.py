"""A cluster for the examples: TF_CONFIG says which task this is; without it, all tasks run on this machine."""

import json
import multiprocessing
import os
import random
import socket
import subprocess
import sys

import tfsched


def _serve(cluster, job, index):
    """A worker or a parameter server: all that its program does."""
    tfsched.Server(cluster, job_name=job, task_index=index).join()


def join_or_start(chief="chief", ps=1, workers=1):
    """(cluster, task index) of the task that trains. The others' programs serve, and never return from here.

    Args:
      chief: the job whose task trains: "chief" for a coordinator, "worker" for a session in the first worker.
      ps, workers: how many to start, where there is no TF_CONFIG.
    """
    if "TF_CONFIG" in os.environ:
        config = json.loads(os.environ["TF_CONFIG"])
        task = config["task"]
        if task["type"] != chief:
            _serve(config["cluster"], task["type"], task["index"])
        return config["cluster"], task["index"]
    jobs = {"ps": ps, "worker": workers}
    ports = _free_ports(ps + workers + 1)
    cluster = {job: [f"localhost:{ports.pop()}" for _ in range(count)] for job, count in jobs.items()}
    tasks = [(job, index) for job, count in jobs.items() for index in range(count) if (job, index) != (chief, 0)]
    cluster.setdefault(chief, [f"localhost:{ports.pop()}"])
    # One process that has imported TensorFlow, from which the tasks are forked.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tensorflow", "tfsched"])
    for job, index in tasks:
        processes.Process(target=_serve, args=(cluster, job, index), daemon=True).start()
    return cluster, 0


_LIMIT_S = 60
_finished = None  # where the workers of this machine meet at the end
_alike = False  # whether this is one of several workers that TF_CONFIG describes, all of which train


def _work(program, cluster, index, finished):
    """A worker that this program has started: it ends when all have finished, for the others may still read from it."""
    program(cluster, index)
    finished.wait(_LIMIT_S)


def workers_or_start(program, workers=2):
    """(cluster, task index) of a worker of MultiWorkerMirroredStrategy, where all run the same program.

    Args:
      program: what the other workers run, called with the cluster and their index, where there is no TF_CONFIG.
      workers: how many to start then.
    """
    global _finished, _alike
    if "TF_CONFIG" in os.environ:
        config = json.loads(os.environ["TF_CONFIG"])
        _alike = True
        return config["cluster"], config["task"]["index"]
    cluster = {"worker": [f"localhost:{port}" for port in _free_ports(workers)]}
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["tensorflow", "tfsched"])
    _finished = processes.Barrier(workers)
    for index in range(1, workers):
        processes.Process(target=_work, args=(program, cluster, index, _finished), daemon=True).start()
    return cluster, 0


def start_workers(count=2):
    """Starts this very program once for each other worker, and has TF_CONFIG say to each which it is. Not where it does.

    Stands in for what starts programs on a real cluster, and is called before TensorFlow is used.
    """
    if "TF_CONFIG" in os.environ:
        return
    cluster = {"worker": [f"localhost:{port}" for port in _free_ports(count)]}
    for index in reversed(range(count)):
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        if index > 0:
            subprocess.Popen([sys.executable, *sys.argv])


def leave():
    """Ends this process and the tasks that it has started; TensorFlow's servers have no end of their own.

    Workers that all-reduce must not end at once: another one may still read the last step's gradients.
    """
    if _alike:
        return
    if _finished is not None:
        _finished.wait(_LIMIT_S)
    for process in multiprocessing.active_children():
        process.kill()
    sys.stdout.flush()
    os._exit(0)


def _free_ports(count):
    """Below those that Linux gives to outgoing connections: such a port could be taken again before its server starts."""
    ports = []
    while len(ports) < count:
        port = random.randrange(20000, 32768)
        with socket.socket() as probe:
            if port not in ports and probe.connect_ex(("localhost", port)) != 0:
                ports.append(port)
    return ports
