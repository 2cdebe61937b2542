"""Keeps the failure of one background update to itself."""

from __future__ import annotations

from typing import Any

from tfsched.grappler.barrier.updates import is_dense_update
from tfsched.grappler.reading.graph import GraphView, cpu_of, split_input, task_of, task_suffix
from tfsched.grappler.reading.op_types import output_dtype

UPDATE_OP = "TfschedUpdate"


def part_failures(body: Any, home: str, token: str, prefix: str) -> str:
    """Makes every update of the body run to its end whatever becomes of the others, in place.

      before                  after: on each PS                                       at home

      ... ─► Apply_i          ... ─► Update(Apply_i) ─► error_i ─► FirstError ────►   Verdict

    The first op that fails ends a step, and everything that it still had to do. But the steps whose updates these are have
    succeeded: only what cannot be done may be missing. That is also what is made from the result of an update that failed
    (an optimizer's slot, say): such an update takes the error of the other.

    Args:
      body: the background function's nodes, a placed GraphDef.
      home: the task that reports the first error.
      token: the body's argument, the token of the background function.
      prefix: of the new nodes' names.

    Returns:
      The name of the node that fails if an update has failed, and else lets the next background function begin; it must run.
    """
    nodes = {node.name: node for node in body.node}
    before = _updates_before(body)
    errors: dict[str, list[str]] = {}
    for node in body.node:
        if not is_dense_update(node.op):
            continue
        update = type(node)()
        update.CopyFrom(node)
        tensors = [text for text in node.input if not text.startswith("^")]
        update.input[:] = tensors
        node.op = UPDATE_OP
        node.attr.clear()
        node.attr["node"].s = update.SerializeToString(deterministic=True)
        sources = [split_input(text) for text in tensors]
        node.attr["Targs"].list.type.extend(output_dtype(nodes[name], port, body.library)[0] for name, port in sources)
        earlier = [name for name in before[node.name] if name != node.name]
        node.attr["N"].i = len(earlier)
        node.input[len(tensors) :] = earlier + [text for text in node.input if text.startswith("^")]
        errors.setdefault(task_of(node.device), []).append(node.name)
    firsts = []
    for task, names in sorted(errors.items()):
        first = body.node.add(name=f"{prefix}error{task_suffix(task)}", op="TfschedFirstError", device=cpu_of(task))
        first.input.extend(names)
        first.attr["N"].i = len(names)
        firsts.append(first.name)
    verdict = body.node.add(name=prefix + "verdict", op="TfschedVerdict", device=cpu_of(home))
    verdict.input.extend([token, *firsts])
    verdict.attr["N"].i = len(firsts)
    return str(verdict.name)


def _updates_before(body: Any) -> dict[str, list[str]]:
    """Name of each update of the body -> the updates that it follows."""
    view = GraphView(body)
    reached: list[set[int]] = [set() for _ in view.nodes]
    found: dict[str, list[str]] = {}
    for number in view.topological:
        sources = [edge.source for edge in view.data_inputs[number]]
        if view.nodes[number].op == "ReadVariableOp":  # sees what the update has written that it follows
            sources += view.control_inputs[number]
        for source in sources:
            reached[number] |= reached[source]
        if is_dense_update(view.nodes[number].op):
            found[view.nodes[number].name] = [view.nodes[one].name for one in sorted(reached[number])]
            reached[number].add(number)
    return found
