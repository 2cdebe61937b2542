"""Makes a step that moves nothing into the background wait for the updates that are under way."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tfsched.graph_ops import HANDLE_OP
from tfsched.grappler.barrier.background import PREFIX, add_node
from tfsched.grappler.barrier.updates import trains
from tfsched.grappler.reading.clients import client_of_session, client_of_worker
from tfsched.grappler.reading.graph import GraphView, digest, task_suffix
from tfsched.grappler.reading.transfers import DRAIN_OP, WAIT_OP, loop_frames
from tfsched.grappler.reading.variable_uses import VariableUses

# How the nodes in front of a step that moves nothing are called.
_WAIT, _HANDLE = "guard", "guarded"


def is_guard(name: str) -> bool:
    """Whether :func:`guard_session_step` has added the node of this name: it is no part of the user's step."""
    return name.startswith((f"{PREFIX}{_WAIT}/", f"{PREFIX}{_HANDLE}/"))


def guard_session_step(
    view: GraphView,
    needed: list[bool],
    home: str,
    fetches: Collection[int],
    capable: Collection[str] | None,
    client: str | None,
) -> bool:
    """Makes a session's step wait before it uses a variable, in place; the step sees the last finished step's values.

      before                                   after

                                               Drain (home) ┄┬► VarHandleOp_i
      VarHandleOp_i ─► Read_i ─► fetch         Handle_i ─► Wait (PS) ┄► VarHandleOp_i ─► Read_i ─► fetch ◄┄ Drain

    The Wait is for the variables' own updates, whoever made them: the graph may be the first one that the session runs. The
    Drain is for the errors of this client's updates, and for what the step does besides using variables. Both are quick
    where nothing is under way. What waits is the handle, so that everything that uses the variable waits, in loops and
    functions too.

    Args:
      view: the placed graph.
      needed: per node whether the step runs it.
      home: the task in whose process the session's background functions start.
      fetches: numbers of what the step is run for.
      capable: the tasks whose processes know tfsched's ops; None means all.
      client: who crosses the barrier in this session; None if nobody does.

    Returns:
      Whether anything was changed.
    """
    if any(node.op in (DRAIN_OP, WAIT_OP) for node in view.nodes):
        return False
    looped = loop_frames(view)
    handles = [n for n, node in enumerate(view.nodes) if needed[n] and node.op == HANDLE_OP]
    handles = [n for n in handles if capable is None or view.tasks[n] in capable]
    waits: dict[str, str] = {}
    # Who trains across the barrier does not wait for the steps of others who train elsewhere at the same time.
    reader = client_of_session(client, home) if client is not None and handles and trains(view, needed) else ""
    for task in sorted({view.tasks[number] for number in handles}):
        mine = [_copy_of_handle(view, number) for number in handles if view.tasks[number] == task]
        mine = sorted(set(mine))
        name = f"{_WAIT}{task_suffix(task)}/{digest(repr(mine).encode())}"
        waits[task] = add_node(view.graph, name, WAIT_OP, task, mine, client=reader.encode(), N=len(mine))
    for number in handles:
        for held in _outside(view, looped, [number]):
            _add_control(view.nodes[held], waits[view.tasks[number]])
    if client is None:
        return bool(waits)
    calls = [n for n, node in enumerate(view.nodes) if needed[n] and _calls_function(view, node)]
    first = _outside(view, looped, [*handles, *calls, *fetches])
    if first:
        drain = _add_drain(view.graph, client_of_session(client, home), home)
        for number in sorted(first):
            _add_control(view.nodes[number], drain)
    return bool(waits or first)


def begin_function_with_drain(view: GraphView, needed: list[bool], client: str, home: str, outputs: Collection[int]) -> bool:
    """Makes a function that trains nothing wait for the updates of the worker that it runs on, in place.

      before                              after

      Read_i ─► ... ─► output             Drain (home) ┄► Read_i ─► ... ─► output ◄┄ Drain

    Returns:
      Whether anything was changed.
    """
    uses = VariableUses(view, needed)
    looped = loop_frames(view)
    first = _outside(view, looped, [*(number for consumers in uses.by.values() for number in consumers), *outputs])
    if not first:
        return False
    drain = _add_drain(view.graph, client_of_worker(client, home), home)
    for number in sorted(first):
        _add_control(view.nodes[number], drain)
    return True


def _copy_of_handle(view: GraphView, number: int) -> str:
    """Adds a handle of the same variable that waits for nothing; returns its name."""
    source = view.nodes[number]
    shared = source.attr["shared_name"].s or source.name.encode()
    name = f"{PREFIX}{_HANDLE}/{digest(repr((view.tasks[number], source.attr['container'].s, shared)).encode())}"
    if name not in view.names:
        view.names.add(name)
        copy = view.graph.node.add()
        copy.CopyFrom(source)
        copy.name = name
        copy.attr["shared_name"].s = shared
        copy.attr.pop("_class", None)
        del copy.input[:]
    return name


def _add_drain(graph: Any, client: str, home: str) -> str:
    return add_node(graph, "drain", DRAIN_OP, home, [], client=client.encode(), timeout_ms=0)


def _add_control(node: Any, name: str) -> None:
    if "^" + name not in node.input:
        node.input.append("^" + name)


def _outside(view: GraphView, looped: list[bool], numbers: Collection[int]) -> set[int]:
    """The nodes, and in place of those in loops where the graph's loops are entered."""
    found = {number for number in numbers if not looped[number]}
    if len(found) < len(set(numbers)):
        found.update(n for n, node in enumerate(view.nodes) if node.op in ("Enter", "RefEnter") and not looped[n])
    return found


def _calls_function(view: GraphView, node: Any) -> bool:
    """Whether the node runs a function, which may use variables that are not its arguments."""
    if any(attr.HasField("func") or attr.list.func for attr in node.attr.values()):
        return True
    return any(function.signature.name == node.op for function in view.graph.library.function)
