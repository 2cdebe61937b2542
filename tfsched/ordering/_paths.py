"""Longest paths of a DAG: when an op can start at the earliest, and how much has to follow it."""

from __future__ import annotations

from collections.abc import Sequence

from .dag import Dag


def heads(dag: Dag, duration: Sequence[int]) -> list[int]:
    """Return per op the longest path of ops before it, without the op itself: its release if nothing had to wait."""
    result = [0] * len(dag.ops)
    for i in dag.topological_order:
        result[i] = max((result[j] + duration[j] for j in dag.input_indices[i]), default=0)
    return result


def tails(dag: Dag, duration: Sequence[int]) -> list[int]:
    """Return per op the longest path of ops after it, without the op itself."""
    result = [0] * len(dag.ops)
    for i in reversed(dag.topological_order):
        result[i] = max((result[j] + duration[j] for j in dag.consumers[i]), default=0)
    return result


def has_recv_before(dag: Dag) -> list[bool]:
    """Return per op whether a recv is among those it depends on, directly or not."""
    recvs = set(dag.recv_indices)
    result = [False] * len(dag.ops)
    for i in dag.topological_order:
        result[i] = any(result[j] or j in recvs for j in dag.input_indices[i])
    return result


def ranks(keys: Sequence[int], best_first: bool = True) -> list[float]:
    """Return per position the number of strictly better keys: smaller ones, or larger ones if not `best_first`."""
    ordered = sorted(keys, reverse=not best_first)
    first: dict[int, int] = {}
    for rank, key in enumerate(ordered):
        first.setdefault(key, rank)
    return [float(first[key]) for key in keys]
