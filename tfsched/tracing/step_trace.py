"""A step trace: what ran in some steps of a session and when, with a file format of its own."""

from __future__ import annotations

import collections
import dataclasses
import gzip
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorflow.core.framework import graph_pb2

from tfsched.errors import TfschedError
from tfsched.grappler.reading.graph import GraphView, task_of
from tfsched.grappler.reading.transfers import find_transfers
from tfsched.grappler.sending.dags import dag_of_placed_graph
from tfsched.ordering import Dag, Plan, TimeOracle, combined, make_plan, with_link
from tfsched.ordering.plan import plan_exchanges
from tfsched.tracing import exchanges as all_reduces
from tfsched.tracing.exchanges import TracedExchange
from tfsched.tracing.pushes import Push, computing_alone, pushes_of, rate_between

FORMAT = "tfsched-trace/1"

# Of a link that carried nothing whose bytes are known: fast, so that bytes do not decide.
_UNKNOWN_BPS = 10**11


class TraceError(TfschedError):
    """A trace that cannot be read or used."""


@dataclasses.dataclass
class TracedStep:
    """One step. All times are Unix time in microseconds.

    Attributes:
      start_us: before the step was asked for.
      end_us: after its results were there.
      ops: node name -> (start_us, duration_us), of all tasks.
      transfers: transfer name -> (requested_us, arrived_us), as the receiver saw it.
      sends: rows of ``tfsched.transfers()`` of the step, of those tasks that have the scheduler.
    """

    start_us: int
    end_us: int
    ops: dict[str, tuple[int, int]]
    transfers: dict[str, tuple[int, int]]
    sends: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    @property
    def makespan_us(self) -> int:
        """From the first op's start to the last op's end, in µs: the step without the client's share."""
        begin = min((start for start, _ in self.ops.values()), default=self.start_us)
        end = max((start + duration for start, duration in self.ops.values()), default=self.end_us)
        return end - begin

    def service_times_us(self, links: Mapping[str, str]) -> dict[str, float]:
        """How long each transfer had its link for itself, in µs.

        The runtime's event lasts from the request to the arrival, waiting included. Transfers of one link pass it one after
        the other, so the k-th to arrive took end_k - max(end_(k-1), request_k).

        Args:
          links: transfer name -> link.
        """
        last_end: dict[str, int] = {}
        times: dict[str, float] = {}
        for name, (requested, arrived) in sorted(self.transfers.items(), key=lambda item: item[1][1]):
            link = links.get(name, "")
            times[name] = float(max(arrived - max(last_end.get(link, 0), requested), 0))
            last_end[link] = arrived
        return times


@dataclasses.dataclass
class StepTrace:
    """Steps of one graph.

    Attributes:
      nodes: (name, op, device, inputs) of the placed graph as it ran, without proxies.
      sizes: transfer name -> bytes, where known.
      links: transfer name -> "sender>receiver".
      steps: the steps, oldest first.
      tensorflow: the version it was recorded with.
      exchanges: the gradients that are all-reduced; they are among ``links`` and ``sizes``, with "all-reduce" as receiver.
    """

    nodes: list[tuple[str, str, str, list[str]]]
    sizes: dict[str, int]
    links: dict[str, str]
    steps: list[TracedStep]
    tensorflow: str = ""
    exchanges: list[TracedExchange] = dataclasses.field(default_factory=list)

    def graph(self) -> Any:
        """The placed graph as a GraphDef without attributes."""
        graph = graph_pb2.GraphDef()
        for name, op, device, inputs in self.nodes:
            graph.node.add(name=name, op=op, device=device, input=inputs)
        return graph

    def receivers(self) -> list[str]:
        """The tasks that something is sent to, those that compute most first."""
        tasks = {link.partition(">")[2] for link in self.links.values()}
        ops = collections.Counter(task_of(device) for _, _, device, _ in self.nodes)
        return sorted(tasks, key=lambda task: (-ops[task], task))

    def oracle(self) -> TimeOracle:
        """The least time of each op over all steps (TicTac, section 5, "Time Oracle").

        A transfer takes its bytes times the least time per byte of its link. Its own service times would not do: several
        transfers may be seen to arrive together, and the least of a few such readings is nearly nothing. They are used only
        where the size is unknown.
        """
        rows: list[dict[str, float]] = []
        us_per_byte = self._us_per_byte()
        for step in self.steps:
            times = {name: float(duration) for name, (_, duration) in step.ops.items()}
            for name, service_us in step.service_times_us(self.links).items():
                rate = us_per_byte.get(self.links.get(name, ""))
                size_bytes = self.sizes.get(name)
                times[name] = service_us if rate is None or size_bytes is None else size_bytes * rate
            rows.append(times)
        return TimeOracle.from_steps(rows)

    def _us_per_byte(self) -> dict[str, float]:
        """Per link the least, over all steps, of its busy time by the bytes that it carried."""
        least: dict[str, float] = {}
        for step in self.steps:
            busy_us: dict[str, float] = {}
            carried: dict[str, int] = {}
            for name, service_us in step.service_times_us(self.links).items():
                link = self.links.get(name, "")
                busy_us[link] = busy_us.get(link, 0.0) + service_us
                carried[link] = carried.get(link, 0) + self.sizes.get(name, 0)
            for link, size_bytes in carried.items():
                if size_bytes > 0:
                    least[link] = min(least.get(link, float("inf")), busy_us[link] / size_bytes)
        return least

    def dag(self, receiver: str | None = None) -> Dag:
        """The DAG of one receiver's partition, with the oracle's times; of all-reduces that of a step (``exchange_dag``).

        Args:
          receiver: a task, or "all-reduce"; None means the first of :meth:`receivers`.

        Raises:
          TraceError: nothing was sent to it.
        """
        known = self.receivers()
        if receiver is None and known:
            receiver = known[0]
        if receiver not in known:
            raise TraceError(
                f"The trace has no transfer to {receiver or 'any task'}; the receivers are {', '.join(known) or 'none'}."
            )
        assert receiver is not None
        if receiver == all_reduces.RECEIVER:
            return all_reduces.dag_of(self.exchanges, self.nodes, self.steps)
        view = GraphView(self.graph())
        needed = [True] * len(view.nodes)
        bare = dag_of_placed_graph(view, needed, find_transfers(view, needed, classify=False), receiver)
        oracle = self.oracle()
        ops = [op._replace(time_us=oracle.time_us(op.name, 0.0), size_bytes=self.sizes.get(op.name)) for op in bare.ops]
        return Dag(bare.resources.values(), ops)

    def plan(
        self, algorithm: str, seed: int = 0, bandwidth_bps: float | None = None, startup_us: float | None = None
    ) -> Plan:
        """The Plan of an ordering for all receivers, with what goes as one tensor, and in which pieces.

        All-reduces are planned for ops that may take longer than traced (``ordering.least_regret``).

        Of parameter servers the pulls of each task are planned by its own partition. The pushes from one task to another are
        planned as all-reduces are: from when a gradient is made to when its variable is next used; ``optimal`` plans the
        way back, too. Variables are pulled in the groups and pieces in which they are pushed.

        Args:
          algorithm: the name of a registered ordering.
          seed: for orderings that draw.
          bandwidth_bps: of the links, in bits per second; None: as traced.
          startup_us: what a message costs besides its bytes; None: as traced.

        Raises:
          TraceError: the trace has no transfers.
          OrderingError: no ordering has that name.
        """
        if not self.receivers():
            raise TraceError("The trace has no transfers between tasks; trace a step of a graph that spans several tasks.")
        about = {"tensorflow": self.tensorflow, "steps": len(self.steps)}
        if self.exchanges:
            dag = with_link(self.dag(all_reduces.RECEIVER), bandwidth_bps, startup_us)
            made = plan_exchanges(dag, algorithm, seed, all_reduces.workers_of(self.exchanges, self.steps))
            return dataclasses.replace(made, metadata={**made.metadata, **about})
        pushes = pushes_of(GraphView(self.graph()), self.sizes)
        others = {name for push in pushes for name in (push.sent.name, *push.pulls)}

        def planned(dag: Dag, pushed: bool = False) -> Plan:
            return make_plan(with_link(dag, bandwidth_bps, startup_us), algorithm, seed=seed, pushed=pushed)

        receivers = {self.links[name].rpartition(">")[2] for name in self.links.keys() - {push.sent.name for push in pushes}}
        plans = [planned(self.dag(receiver)) for receiver in self.receivers() if receiver in receivers]
        groups = [group for plan in plans for group in plan.groups or () if not others & {*group}]
        sizes: dict[str, int] = {}
        pieces: dict[str, tuple[tuple[int, float], ...]] = {}
        by_link: dict[tuple[str, str], list[Push]] = {}
        for push in pushes:
            by_link.setdefault((push.sender, push.receiver), []).append(push)
        priorities = {name: value for plan in plans for name, value in plan.priorities.items()}
        for link, mine in by_link.items():
            plan = _with_large_alone(planned(self._dag_of_pushes(mine, *link), pushed=True), mine)
            for push in mine:
                if push.sent.name in plan.partition_bytes:
                    sizes.update(dict.fromkeys(push.pulls, plan.partition_bytes[push.sent.name]))
                for pull in push.pulls:  # in the push's pieces, and as urgent as the pull is
                    cut = plan.pieces.get(push.sent.name, ())
                    pieces[pull] = tuple((size, priorities[pull]) for size, _ in cut)
            plan = plan.renamed({push.sent.name: push.other_name for push in mine if push.other_name})
            plan = plan.renamed({push.sent.name: push.update_name for push in mine if push.update_name})
            for group in plan.groups or ():
                groups += [group, tuple(name for push in mine if push.sent.name in group for name in push.pulls)]
            plans.append(plan)
        return combined(algorithm, plans, groups, sizes, pieces, about)

    def _dag_of_pushes(self, pushes: Sequence[Push], sender: str, receiver: str) -> Dag:
        """What one task pushes to another one, as a chain of gradients."""
        rate = rate_between(sender, receiver, self.steps)
        if rate is None:
            us_per_byte = self._us_per_byte()
            known = us_per_byte.get(f"{receiver}>{sender}") or us_per_byte.get(f"{sender}>{receiver}") or 0.0
            rate = all_reduces.Rate(8e6 / known if known > 0 else float(_UNKNOWN_BPS), all_reduces.LEAST_STARTUP_US)
        steps = computing_alone(self.steps, self.nodes, sender)
        return all_reduces.dag_of([push.sent for push in pushes], self.nodes, steps, rate)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; see docs/trace-format.md."""
        return {
            "format": FORMAT,
            "tensorflow": self.tensorflow,
            "nodes": [list(node) for node in self.nodes],
            "transfers": [{"name": name, "link": link, "bytes": self.sizes.get(name)} for name, link in self.links.items()],
            "steps": [dataclasses.asdict(step) for step in self.steps],
            **({"exchanges": [dataclasses.asdict(one) for one in self.exchanges]} if self.exchanges else {}),
        }

    @classmethod
    def from_json(cls, data: Any) -> StepTrace:
        """Reads what :meth:`to_json` wrote.

        Raises:
          TraceError: it is not that; the message says where.
        """
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, dict) else type(data).__name__
            raise TraceError(f"The trace's format is {found!r}; give a file written by 'tfsched trace' ({FORMAT}).")
        try:
            return cls(
                nodes=[
                    (_text(name), _text(op), _text(device), [_text(one) for one in inputs])
                    for name, op, device, inputs in data["nodes"]
                ],
                sizes={_text(row["name"]): _count(row["bytes"]) for row in data["transfers"] if row["bytes"] is not None},
                links={_text(row["name"]): _text(row["link"]) for row in data["transfers"]},
                steps=[
                    TracedStep(
                        start_us=_count(row["start_us"]),
                        end_us=_count(row["end_us"]),
                        ops=_pairs(row["ops"]),
                        transfers=_pairs(row["transfers"]),
                        sends=[dict(send) for send in row["sends"]],
                    )
                    for row in data["steps"]
                ],
                tensorflow=_text(data["tensorflow"]),
                exchanges=[
                    TracedExchange(
                        size_bytes=_count(row["size_bytes"]),
                        **{key: _text(row[key]) for key in ("name", "maker", "use", "transfer")},
                    )
                    for row in data.get("exchanges", ())
                ],
            )
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            reason = f"missing {error}" if isinstance(error, KeyError) else str(error)
            raise TraceError(f"The trace is damaged ({reason}); record it again with 'tfsched trace'.") from None

    def save(self, path: str, open_fn: Callable[..., Any] | None = None) -> None:
        """Writes the trace to ``path``, gzipped if it ends in ".gz". Anything that ``tf.io.gfile`` writes."""
        text = json.dumps(self.to_json(), separators=(",", ":")).encode()
        with (open_fn or _gfile())(path, "wb") as file:
            file.write(gzip.compress(text) if path.endswith(".gz") else text)


def load_trace(path: str, open_fn: Callable[..., Any] | None = None) -> StepTrace:
    """Reads a trace that :meth:`StepTrace.save` wrote.

    Raises:
      TraceError: there is no such file, or it is no trace.
    """
    import tensorflow as tf

    try:
        with (open_fn or _gfile())(path, "rb") as file:
            content = file.read()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        data = json.loads(content)
    except (OSError, tf.errors.OpError) as error:
        raise TraceError(f"The trace {path} cannot be read ({str(error).splitlines()[0]}); check the path.") from None
    except (ValueError, EOFError) as error:
        raise TraceError(f"The trace {path} is not JSON ({error}); give a file written by 'tfsched trace'.") from None
    return StepTrace.from_json(data)


def _with_large_alone(plan: Plan, pushes: Sequence[Push]) -> Plan:
    """The plan with what it cuts in no group: a server updates and sends back a variable piece by piece, but not a group."""
    large = {
        name
        for name, size_bytes in ((push.sent.name, push.sent.size_bytes) for push in pushes)
        if size_bytes > plan.partition_bytes.get(name, 0) > 0
    }
    if plan.groups is None or not large:
        return plan
    left = [tuple(name for name in group if name not in large) for group in plan.groups]
    return dataclasses.replace(plan, groups=tuple(group for group in left if len(group) > 1))


def plan_from_trace(trace: StepTrace, algorithm: str, seed: int = 0) -> Plan:
    """``trace.plan(algorithm, seed)``, for those who prefer functions."""
    return trace.plan(algorithm, seed)


def _gfile() -> Callable[..., Any]:
    import tensorflow as tf

    return tf.io.gfile.GFile


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} is not a number")
    return int(value)


def _pairs(rows: Any) -> dict[str, tuple[int, int]]:
    return {_text(name): (_count(pair[0]), _count(pair[1])) for name, pair in rows.items()}
