"""US-Byte and DynaComm: literal versions, exhaustive search, and what their sources say of them."""

from __future__ import annotations

import itertools
import random

from tfsched.ordering import Decision, evaluate, get
from tfsched.ordering.dynacomm import backward_segments, forward_segments
from tfsched.ordering.us_byte import Tensor, best_urgency, blocks_of, step_ns

from .test_chain import large
from .test_pace import training_chain


def splits(count: int) -> list[list[tuple[int, int]]]:
    """All ways to cut a chain into segments."""
    result = []
    for chosen in itertools.product((False, True), repeat=count - 1):
        edges = [0, *(i + 1 for i, cut in enumerate(chosen) if cut), count]
        result.append(list(itertools.pairwise(edges)))
    return result


def pulled(segments: list[tuple[int, int]], startup: int, wires: list[int], computes: list[int]) -> int:
    arrived = now = 0
    for first, end in segments:
        arrived += startup + sum(wires[first:end])
        now = max(now, arrived) + sum(computes[first:end])
    return now


def pushed(segments: list[tuple[int, int]], startup: int, wires: list[int], releases: list[int]) -> int:
    now = 0
    for first, end in segments:
        now = max(now, releases[end - 1]) + startup + sum(wires[first:end])
    return now


def test_dynacomm_is_the_best_of_all_segmentations() -> None:
    draw = random.Random(1)
    for _ in range(150):
        count, startup = draw.randrange(1, 8), draw.randrange(6)
        wires = [draw.randrange(9) for _ in range(count)]
        computes = [draw.randrange(9) for _ in range(count)]
        releases = sorted(draw.randrange(30) for _ in range(count))
        end, segments = forward_segments(startup, wires, computes)
        assert end == pulled(segments, startup, wires, computes)
        assert end == min(pulled(one, startup, wires, computes) for one in splits(count))
        end, segments = backward_segments(startup, wires, releases)
        assert end == pushed(segments, startup, wires, releases)
        assert end == min(pushed(one, startup, wires, releases) for one in splits(count))


def test_dynacomm_is_never_later_than_mg_wfbp_with_the_last_gradient() -> None:
    draw = random.Random(2)
    for number in range(30):
        dag = large(training_chain(draw, draw.randrange(2, 12), startup_us=(2.0, 8.0)[number % 2]))
        ends = [max(evaluate(dag, get(name)(dag)).end_us[op.name] for op in dag.recvs) for name in ("dynacomm", "mg-wfbp")]
        assert ends[0] <= ends[1] + 1e-6


def literal_first_phase(tensors: list[Tensor], unit: int, urgency: list[int]) -> list[tuple[int, int]]:
    """(tensor, units) of the first phase as the authors' algorithm 1 goes, unit by unit; bytes' times are whole."""
    left = [-(-tensor.size_bytes // unit) for tensor in tensors]
    result: list[list[int]] = []
    now, released = tensors[-1].release, {len(tensors) - 1}
    for coming in range(len(tensors) - 2, -1, -1):
        until = tensors[coming].release
        while now < until:
            waiting = [t for t in released if left[t]]
            if not waiting:
                now = until
                break
            t = min(waiting, key=lambda t: (urgency[t], t))
            if result and result[-1][0] == t:
                result[-1][1] += 1
            else:
                result.append([t, 1])
                now += tensors[t].startup
            left[t] -= 1
            now += tensors[t].wire * unit // tensors[t].size_bytes
        released.add(coming)
    return [(t, units) for t, units in result]


def drawn(draw: random.Random) -> list[Tensor]:
    """In the order of the forward pass; a byte takes 1, sizes are whole units of 4, releases all differ."""
    count = draw.randrange(1, 7)
    releases = sorted(draw.sample(range(60), count), reverse=True)
    startup = draw.randrange(1, 5)
    sizes = [4 * draw.randrange(1, 6) for _ in range(count)]
    return [Tensor(r, startup, size, size, draw.randrange(9)) for r, size in zip(releases, sizes, strict=True)]


def test_us_byte_equals_algorithm_1_unit_by_unit() -> None:
    draw = random.Random(3)
    lengthened = 0
    for _ in range(400):
        tensors = drawn(draw)
        urgency = draw.sample(range(len(tensors)), len(tensors))
        blocks = blocks_of(tensors, 4, urgency)
        literal = literal_first_phase(tensors, 4, urgency)
        assert [(b.tensor, b.size_bytes) for b in blocks[: len(literal)]][:-1] == [(t, 4 * n) for t, n in literal][:-1]
        assert sum(b.size_bytes for b in blocks) == sum(tensor.size_bytes for tensor in tensors)
        rest = [b.tensor for b in blocks if b.start >= tensors[0].release]
        assert rest == sorted(rest)  # the second phase, in the order of the forward pass
        assert all(before.end <= block.start for before, block in itertools.pairwise(blocks))
        lengthened += any(b.size_bytes > 4 for b in blocks)
    assert lengthened > 100


def test_us_byte_with_chosen_urgency_is_never_longer_than_the_forward_passs_order() -> None:
    draw = random.Random(4)
    better = 0
    for _ in range(300):
        tensors = drawn(draw)
        plain = step_ns(tensors, blocks_of(tensors, 4, list(range(len(tensors)))))
        best, urgency, blocks, _ = best_urgency(tensors, 4)
        assert best == step_ns(tensors, blocks) == step_ns(tensors, blocks_of(tensors, 4, urgency)) <= plain
        better += best < plain
    assert better > 0


def test_us_bytes_own_step_is_the_evaluated_one() -> None:
    draw = random.Random(5)
    for number in range(20):
        dag = large(training_chain(draw, draw.randrange(2, 9), startup_us=(0.0, 2.0, 8.0)[number % 3]))
        plan = get("us-byte")(dag)
        assert isinstance(plan, Decision) and plan.messages
        assert sum(part.size_bytes for message in plan.messages for part in message.parts) == sum(
            op.size_bytes or 0 for op in dag.recvs
        )
        assert evaluate(dag, plan).makespan_us <= evaluate(dag, get("fifo")(dag)).makespan_us + 1e-3
