"""Who trains: what background updates, and those who wait for them, go by."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tfsched.grappler.reading.graph import GraphView
from tfsched.grappler.reading.variables import is_handle, variable_behind

# What a function's graph has and a session's has not.
_OF_FUNCTIONS = {"_Arg", "_Retval", "_DeviceArg", "_DeviceRetval"}


def is_function(graph: Any) -> bool:
    """Whether the graph is that of a tf.function, as its worker is about to run it."""
    return any(node.op in _OF_FUNCTIONS for node in graph.node)


def client_of_session(client: str, home: str) -> str:
    """The client of a session's steps; sessions of one program see each other's steps, whatever their masters.

    Args:
      client: "program+name"; all sessions of one config share it.
      home: the task that starts the background functions, "/job:worker/replica:0/task:3".
    """
    return f"{client}@{home}"


def client_of_worker(client: str, home: str) -> str:
    """The client of the functions that run on one task: each worker of a coordinator is a trainer of its own.

    Args:
      client: whom the options were set for, "" for anybody.
      home: the task that starts the background functions, "/job:worker/replica:0/task:3".
    """
    return f"{client}/{home}@{home}"


def home_of_function(view: GraphView, local: Collection[str]) -> str:
    """Where a function's updates would run: the task of this process that computes for it; "" if there is none."""
    servers = {view.tasks[number] for number, node in enumerate(view.nodes) if is_handle(node)}
    return min((set(local) & set(view.tasks)) - servers, default="")


def count_workers(view: GraphView, cluster: Collection[str] = ()) -> int:
    """How many tasks share the parameter servers, 1 at least: those that pull variables, and others of the same jobs.

    A worker of a ParameterServerStrategy is alone: its graph is its own, and TensorFlow hides the other workers from it.

    Args:
      view: the placed graph.
      cluster: the tasks that are known besides those of the graph.
    """
    senders, receivers = set(), set()
    for number, task in enumerate(view.tasks):
        for source in {edge.source for edge in view.data_inputs[number] if edge.source >= 0}:
            if task and view.tasks[source] not in ("", task) and variable_behind(view, source) is not None:
                senders.add(view.tasks[source])
                receivers.add(task)
    workers = receivers - senders  # servers read a variable of another one, too
    jobs = {_job_of(task) for task in workers}
    return max(1, len(workers | {task for task in cluster if _job_of(task) in jobs}))


def _job_of(task: str) -> str:
    return task.partition("/replica:")[0]
