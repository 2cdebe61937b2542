"""Keeps the failure of one background update to itself."""

from __future__ import annotations

from typing import Any

from tfsched.grappler.graph import cpu_of, split_input, task_of, task_suffix
from tfsched.grappler.op_types import output_dtype
from tfsched.grappler.updates import is_dense_update

UPDATE_OP = "TfschedUpdate"


def part_failures(body: Any, home: str, prefix: str) -> str:
    """Makes every update of the body run to its end whatever becomes of the others, in place.

      before                  after: on each PS                                       at home

      ... ─► Apply_i          ... ─► Update(Apply_i) ─► error_i ─► FirstError ────►   Verdict

    The first op that fails ends a step, and everything that it still had to do. But the steps whose updates these are have
    succeeded: only what cannot be done may be missing.

    Args:
      body: the background function's nodes, a placed GraphDef.
      home: the task that reports the first error.
      prefix: of the new nodes' names.

    Returns:
      The name of the node that fails if an update has failed; it must run.
    """
    nodes = {node.name: node for node in body.node}
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
        errors.setdefault(task_of(node.device), []).append(node.name)
    firsts = []
    for task, names in sorted(errors.items()):
        first = body.node.add(name=f"{prefix}error{task_suffix(task)}", op="TfschedFirstError", device=cpu_of(task))
        first.input.extend(names)
        first.attr["N"].i = len(names)
        firsts.append(first.name)
    verdict = body.node.add(name=prefix + "verdict", op="TfschedVerdict", device=cpu_of(home))
    verdict.input.extend(firsts)
    verdict.attr["N"].i = len(firsts)
    return str(verdict.name)
