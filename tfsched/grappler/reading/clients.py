"""Who trains: what background updates, and those who wait for them, go by."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tfsched.grappler.reading.graph import GraphView
from tfsched.grappler.reading.variables import is_handle

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
