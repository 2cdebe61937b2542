"""Measures settings where workers all-reduce: all of them make the same turn at the same time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tfsched.bench import reducing
from tfsched.bench.batch import BatchFit
from tfsched.bench.errors import BenchFailed
from tfsched.bench.links import Link
from tfsched.bench.runner import ALL_REDUCE, BESIDE, COMPUTE, EXCHANGE, JOIN, PIECES, TCP, TRACED_STEPS, Runner
from tfsched.bench.settings import TFSCHED, Setting

# For how much longer than computing alone takes EXCHANGE keeps the links busy for BESIDE: computing takes longer beside it.
_LONGER = 2.0


def merged(answers: Sequence[dict[str, Any]], one_clock: bool = True) -> dict[str, Any]:
    """One block's answer from those of all workers, in the terms of `Chief.do_run`.

    A step begins with its first worker and ends with its last, a block with the last update of any. `exchanged` is of a
    step, and the least of any worker's. `finishes_s` is empty where the workers do not see when their gradients exist.
    Machines have clocks of their own: without `one_clock` each worker's times are from its own first step on, for all begin
    with the end of a tiny all-reduce.
    """
    if not one_clock:
        answers = [_from_first_step(answer) for answer in answers]
    count = len(answers[0]["ends_s"])
    begin_s = min(answer["starts_s"][0] for answer in answers)
    starts_s = [min(answer["starts_s"][step] for answer in answers) for step in range(count)]
    ends_s = [max(answer["ends_s"][step] for answer in answers) for step in range(count)]
    seen = all(answer["finishes_s"] for answer in answers)
    finished = range(count if seen else 0)
    finishes_s = [[answer["finishes_s"][step] - starts_s[step] for answer in answers] for step in finished]
    return {
        "steps_s": [end_s - start_s for start_s, end_s in zip(starts_s, ends_s, strict=True)],
        "ends_s": [end_s - begin_s for end_s in ends_s],
        "block_s": max(answer["drained_s"] for answer in answers) - begin_s,
        "finishes_s": finishes_s,
        "exchanged": min(answer["exchanged"] for answer in answers) / count,
        "unscheduled": any(answer["unscheduled"] for answer in answers),
    }


def _from_first_step(answer: dict[str, Any]) -> dict[str, Any]:
    """A worker's answer with its times counted from its first step's begin."""
    first_s = answer["starts_s"][0]
    shifted = {name: [time_s - first_s for time_s in answer[name]] for name in ("starts_s", "finishes_s", "ends_s")}
    return {**answer, **shifted, "drained_s": answer["drained_s"] - first_s}


class ReplicasRunner(Runner):
    """As Runner, but each request goes to all workers that speak its setting's protocol.

    Attributes:
        gradient_bytes: of one worker's gradients, once the batch is chosen.
        exchanged: tensors that tfsched all-reduced in a step, by setting, the least of any block.
    """

    def __init__(self, *arguments: Any, link: Link) -> None:
        super().__init__(*arguments)
        self._bandwidth_bps = link.bandwidth_bps
        # An emulated link limits tfsched's servers, and no sockets.
        self._links = [ALL_REDUCE, *([TCP] if link.kind == "netns" and link.bandwidth_bps is not None else [])]
        self._bounds = [COMPUTE, *self._links, *([BESIDE, JOIN] if BESIDE in self._bounds else [])]
        if BESIDE in self._bounds and self._in_pieces is not None:
            self._bounds += [EXCHANGE, PIECES]
        self._exchanges_a_step = 1.0  # that take as long as computing, for BESIDE
        self._protocols: dict[str, str] = {}  # of each setting; the bounds have one
        self._batches: dict[str, int | None] = {}  # by graph
        self.gradient_bytes = 0
        self.exchanged: dict[str, float] = {}
        self._computes = bool(self._model["phase"] == "train")

    def choose_batch(self, batch: int | None) -> BatchFit | None:
        """As Runner's; what only all-reduces needs none."""
        fit = super().choose_batch(batch if self._computes else 0)
        if BESIDE in self._bounds:
            self._open_beside()
        return fit

    def _open_beside(self) -> None:
        """Loops in the processes that have tfsched: one computes, one only all-reduces, the others are those of bounds."""
        self._protocols.update({BESIDE: TFSCHED, EXCHANGE: TFSCHED, PIECES: TFSCHED})
        self._call(BESIDE, do="open", computes=True, reduces=False, batch=self._batches["compute"])
        self._call(EXCHANGE, do="open_exchanging", options={"ordering": "tio"})
        self._exchanges_a_step = self._probe(COMPUTE) / self._probe(EXCHANGE)
        self._call(JOIN, do="open_joining")
        if self._in_pieces is not None:
            self._call(PIECES, do="open_exchanging", options={**(self._in_pieces.options or {}), "barrier": True})

    def _build(self, graph: str, batch: int | None) -> dict[str, Any]:
        self._batches[graph] = batch
        if not self.gradient_bytes:
            for protocol in self._cluster.protocols:
                (answer, *_) = self._cluster.call_each(
                    protocol, do="build", model=self._model["model"], seed=self._model["seed"]
                )
                self.gradient_bytes = answer["gradient_bytes"]
        return {"bytes_by_device": {}}

    def _open(self, session: str, graph: str, plain: bool = False) -> None:
        del plain
        if session == TCP:
            self._connect(session)
            return
        computes = graph == "compute" and self._computes
        self._call(session, do="open", computes=computes, reduces=graph == "communication", batch=self._batches[graph])

    def _connect(self, session: str) -> None:
        answers = self._cluster.call_each(self._bounds_protocol, do="listen", session=session)
        sent_bytes = reducing.least_bytes(self.gradient_bytes, self._cluster.workers)
        addresses = [answer["address"] for answer in answers]
        self._call(session, do="connect", addresses=addresses, sent_bytes=sent_bytes)

    def _target_s(self) -> float:
        least_s = reducing.least_s(self.gradient_bytes, self._cluster.workers, self._bandwidth_bps)
        return self._probe(ALL_REDUCE) if least_s is None else least_s

    def _open_setting(self, session: str, setting: Setting, options: dict[str, object]) -> None:
        self._protocols[session] = setting.protocol
        self._call(
            session,
            do="open",
            computes=self._computes,
            reduces=True,
            batch=self._batches["step"],
            options=None if setting.options is None else options,
        )

    def _plan(self, setting: Setting) -> str:
        """As Runner's: all run the steps, and the first worker's plan is everybody's."""
        assert setting.options is not None
        return str(self._traced(setting, do="plan", algorithm=setting.options["ordering"])["plan"])

    def _traced(self, setting: Setting, **request: Any) -> dict[str, Any]:
        """The first worker's answer to a request that traces steps of the setting, with the barrier kept."""
        session = f"{setting.name} (traced)"
        self._open_setting(session, setting, {**(setting.options or {}), "ordering": "tio", "barrier": True})
        self._run(session, self._warmup)
        answer = self._call(session, steps=TRACED_STEPS, **request)
        self._call(session, do="close")
        self.exchanged.pop(session, None)
        return answer

    def trace_kept(self, path: str) -> bool:
        """As Runner's, but of the first setting of tfsched: stock TensorFlow all-reduces no single gradients."""
        setting = next((setting for setting in self._settings if setting.options is not None), None)
        if setting is None:
            return False
        self._traced(setting, do="trace", path=path)
        return True

    def _run(self, session: str, count: int) -> dict[str, Any]:
        if count < 1:
            return {}
        if session == BESIDE:
            times = 1 + math.ceil(_LONGER * count * self._exchanges_a_step)
            return self._call(session, do="run", count=count, beside=EXCHANGE, times=times)
        answer = self._call(session, do="run", count=count)
        if session not in self._bounds:
            self.exchanged[session] = min(self.exchanged.get(session, answer["exchanged"]), answer["exchanged"])
        return answer

    def _call(self, session: str, **request: Any) -> dict[str, Any]:
        request.pop("fetch", None)  # a function has one result
        protocol = self._protocols.get(session, self._bounds_protocol)
        answers = self._cluster.call_each(protocol, session=session, **request)
        return merged(answers, self._cluster.one_clock) if request["do"] == "run" else answers[0]

    def check_alike(self) -> None:
        """Compares the variables of all workers after the last step.

        Raises:
            BenchFailed: they differ.
        """
        for protocol in self._cluster.protocols:
            if len({answer["digest"] for answer in self._cluster.call_each(protocol, do="digest")}) > 1:
                raise BenchFailed(
                    f"the workers that speak {protocol} have different variables after the run: their all-reduces gave "
                    "different sums, please report it"
                )
