"""Compute ops grouped by communication dependency, the data structure below TIO and TAO."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from .dag import Dag


class Groups:
    """The compute ops of a dag that share one communication dependency are one group.

    op.dep (TicTac, section 4.1) is the set of recvs an op depends on, directly or transitively; a
    recv's own dep includes itself. A training graph has far fewer distinct sets than ops. Sets are
    Python integers, one bit per recv.

    Recvs are numbered 0..m-1 in file order. Their bits are sorted by channel, so that the bits of
    one channel are adjacent.

    Attributes:
      channel: per recv the number of its link, 0..channels-1.
      bit: per recv its bit; `recv_of_bit` is the inverse.
      sets: per group its recvs as bits.
      group_of: per op (file order) its group, or -1 for recvs and for ops that need no recv.
      successors: per node (recv r is node r, group g is node m+g) the nodes that read it.
    """

    def __init__(self, dag: Dag) -> None:
        links: dict[str, int] = {}
        self.channel = [links.setdefault(op.resource, len(links)) for op in dag.recvs]
        self.channels = len(links)
        self.recvs = len(self.channel)
        self.recv_of_bit = sorted(range(self.recvs), key=self.channel.__getitem__)
        self.bit = [0] * self.recvs
        for bit, recv in enumerate(self.recv_of_bit):
            self.bit[recv] = bit
        self.sets: list[int] = []
        self.group_of = [-1] * len(dag.ops)
        self.successors = self._connect(dag, self._collect(dag))

    def _collect(self, dag: Dag) -> list[int]:
        """Fill `sets` and `group_of`; return per op its node, or -1 if it needs no recv."""
        recv_of_op = {i: r for r, i in enumerate(dag.recv_indices)}
        # By bytes: integers of many ones, as the prefixes of a chain, have only 61 different hashes.
        group_of_set: dict[bytes, int] = {}
        group_of_object: dict[int, int] = {}
        width = (self.recvs + 7) // 8
        dep = [0] * len(dag.ops)
        node = [-1] * len(dag.ops)
        for i in dag.topological_order:
            union = 0
            for j in dag.input_indices[i]:
                # Ops of one group share one integer object, which makes most unions free.
                if dep[j] is not union:
                    union |= dep[j]
            if i in recv_of_op:
                dep[i] = union | (1 << self.bit[recv_of_op[i]])
                node[i] = recv_of_op[i]
            elif union:
                group = group_of_object.get(id(union), -1)
                if group < 0:
                    group = group_of_set.setdefault(union.to_bytes(width, "little"), len(self.sets))
                    if group == len(self.sets):
                        self.sets.append(union)
                        group_of_object[id(union)] = group
                dep[i] = self.sets[group]
                self.group_of[i] = group
                node[i] = self.recvs + group
        return node

    def _connect(self, dag: Dag, node: list[int]) -> list[list[int]]:
        nodes = self.recvs + len(self.sets)
        successors: list[list[int]] = [[] for _ in range(nodes)]
        seen: set[int] = set()
        for i, inputs in enumerate(dag.input_indices):
            for j in inputs:
                source, target = node[j], node[i]
                edge = source * nodes + target
                if source >= 0 and source != target and edge not in seen:
                    seen.add(edge)
                    successors[source].append(target)
        return successors

    def frontier(self, starts: Iterable[int], count: Sequence[int] | np.ndarray, expanded: bytearray) -> list[int]:
        """Return the first groups with two or more outstanding recvs, downstream of `starts`.

        `starts` are nodes that depend on one outstanding recv r, `count` is per group its number of
        outstanding recvs. The walk goes through groups that wait for r alone and through other
        recvs. Any group that waits for r and another recv lies at or behind this frontier, and
        behind it M only grows; so r's M+ is the smallest M of the frontier.

        `expanded` marks the groups walked through. Such a group waits for one recv only and has
        given that recv its frontier, so no later walk needs it.
        """
        result = []
        seen: set[int] = set()
        stack = list(starts)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            group = node - self.recvs
            if group < 0:
                stack.extend(self.successors[node])
            elif count[group] >= 2:
                result.append(group)
            elif not expanded[group]:
                expanded[group] = 1
                stack.extend(self.successors[node])
        return result
