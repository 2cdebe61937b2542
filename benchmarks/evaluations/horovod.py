"""Default Horovod as an ordering, for `tfsched sweep --plugin`: it fuses the gradients that became ready in a cycle of 5 ms.

Sergeev and Del Balso, 2018, and the defaults of the releases that PACE's authors could use: a cycle of 5 ms and a fusion
buffer of 64 MiB. Cycles are counted from the start of back-propagation; in Horovod they fall anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfsched.ordering import Dag, Decision, register
from tfsched.ordering._paths import heads, ranks
from tfsched.ordering.decision import Message, Part
from tfsched.ordering.oracle import times_ns

CYCLE_NS = 5_000_000
BUFFER_BYTES = 64 * 2**20


@register("horovod")
def horovod(dag: Dag, times_us: Mapping[str, float] | None = None, *, seed: int = 0) -> Decision:
    """Return first in, first out, with the gradients of a cycle in as few messages as the buffer allows.

    A message leaves at the end of the cycle in which its gradients became ready. A gradient larger than the buffer goes by
    itself. Raises DagError for a bad time. `seed` is not used.
    """
    ready = heads(dag, times_ns(dag, times_us))
    messages: list[Message] = []
    for link in dict.fromkeys(op.resource for op in dag.recvs):
        own = sorted((i for i in dag.recv_indices if dag.ops[i].resource == link), key=lambda i: ready[i])
        cycles: dict[int, list[int]] = {}
        for i in own:
            cycles.setdefault(-(-ready[i] // CYCLE_NS), []).append(i)
        for cycle, members in cycles.items():
            parts: list[Part] = []
            for i in members:
                part = Part(dag.ops[i].name, dag.ops[i].size_bytes or 0)
                if parts and sum(one.size_bytes for one in parts) + part.size_bytes > BUFFER_BYTES:
                    messages.append(Message(tuple(parts), cycle * CYCLE_NS / 1000))
                    parts = []
                parts.append(part)
            messages.append(Message(tuple(parts), cycle * CYCLE_NS / 1000))
    order = ranks([ready[i] for i in dag.recv_indices])
    priorities = {op.name: priority for op, priority in zip(dag.recvs, order, strict=True)}
    return Decision(priorities, messages=messages, policy="fifo")
