"""What of a planner's messages a Plan carries to the wire: groups of whole recvs, and pieces with places of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tfsched._rules import BLOCK_BYTES, MAX_CHUNKS, MIN_PARTITION_BYTES, chunk_bytes

from .decision import Decision

# Bytes and priority of one piece; a tensor's pieces are in the order of its bytes.
Piece = tuple[int, float]


class Carried(NamedTuple):
    """Messages as tfsched sends them.

    Attributes:
      priorities: recv -> the place of its first message, or behind all messages, in the decision's order.
      groups: recvs that are whole in one message leave as one tensor.
      pieces: recv -> its pieces, two or more, each with the place of its message.
    """

    priorities: dict[str, float]
    groups: tuple[tuple[str, ...], ...]
    pieces: dict[str, tuple[Piece, ...]]


def carried(decision: Decision, sizes_bytes: Mapping[str, int]) -> Carried:
    """Return what is sent of `decision.messages`.

    A part of a recv leaves by itself, also where its message has others beside it. Borders between pieces are rounded down
    to BLOCK_BYTES; a piece below MIN_PARTITION_BYTES leaves with the one before it. What no message has follows behind all.
    Pieces are of `divided_bytes` at most. Nothing is held back: `not_before_us` is left out.

    Args:
      decision: with messages.
      sizes_bytes: recv -> bytes, of all recvs.
    """
    parts: dict[str, list[tuple[int, int]]] = {}
    for place, message in enumerate(decision.messages):
        for part in message.parts:
            parts.setdefault(part.recv, []).append((part.size_bytes, place))
    last = len(decision.messages)
    ranked = sorted((name for name in decision if name not in parts), key=lambda name: decision[name])
    priorities = {name: float(last + 1 + position) for position, name in enumerate(ranked)}
    pieces: dict[str, tuple[Piece, ...]] = {}
    whole: dict[int, list[str]] = {}
    for name, planned in parts.items():
        cut = _cut(planned, sizes_bytes[name], last)
        priorities[name] = min(place for _, place in cut)
        if len(cut) > 1:
            most = decision.divided_bytes and max(decision.divided_bytes, 2 * sizes_bytes[name] // MAX_CHUNKS)
            pieces[name] = tuple((one, place) for size, place in cut for one in chunk_bytes(size, most))
        else:
            whole.setdefault(int(cut[0][1]), []).append(name)
    groups = tuple(tuple(names) for names in whole.values() if len(names) > 1)
    return Carried({name: priorities[name] for name in decision}, groups, pieces)


def _cut(planned: list[tuple[int, int]], size_bytes: int, last: int) -> list[Piece]:
    """The pieces of one recv of `size_bytes`."""
    left = size_bytes - sum(size for size, _ in planned)
    result: list[Piece] = []
    begin = end = 0
    for size, place in [*planned, *([(left, last)] if left > 0 else [])]:
        end = min(end + size, size_bytes)
        border = end if end == size_bytes else end - end % BLOCK_BYTES
        if result and border - begin < MIN_PARTITION_BYTES:
            result[-1] = (result[-1][0] + border - begin, result[-1][1])
        elif border > begin or not result:
            result.append((border - begin, float(place)))
        begin = border
    if len(result) > 1 and result[0][0] < MIN_PARTITION_BYTES:
        first = result.pop(0)
        result[0] = (first[0] + result[0][0], min(first[1], result[0][1]))
    return result
