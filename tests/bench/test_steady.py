"""The step time of a block, from the times at which its steps ended."""

import heapq
import random

import pytest

from tfsched.bench.runner import COMPUTE, PIECES, PULL, PUSH, Runner
from tfsched.bench.settings import STOCK, TFSCHED, find_settings
from tfsched.bench.steady import LEAD, is_steady, step_time_s

SHORT, LONG = range(1, 2 * LEAD + 1), (2 * LEAD + 1, 2 * LEAD + 2, 15, 40)


def shared_queue(count: int, begins_s: list[float], step_s: list[float]) -> list[float]:
    """The ends of `count` steps a worker, of one queue: a worker takes the next one when it has done its last."""
    free_s = [(begin_s, worker) for worker, begin_s in enumerate(begins_s)]
    heapq.heapify(free_s)
    ends_s = []
    for _ in range(count * len(begins_s)):
        at_s, worker = heapq.heappop(free_s)
        ends_s.append(at_s + step_s[worker])
        heapq.heappush(free_s, (ends_s[-1], worker))
    return sorted(ends_s)


def test_blocks_of_more_than_six_steps_are_long():
    assert not any(map(is_steady, SHORT))
    assert all(map(is_steady, LONG))


@pytest.mark.parametrize("count", LONG)
@pytest.mark.parametrize("each", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_regular_ends_give_their_distance_wherever_in_a_step_each_worker_is(count, each, seed):
    draw = random.Random(seed)
    period_s, begin_s = draw.uniform(0.001, 10), draw.uniform(0, 100)
    phases_s = [draw.uniform(0, period_s) for _ in range(each)]
    ends_s = sorted(begin_s + phase_s + number * period_s for phase_s in phases_s for number in range(count))
    assert step_time_s(ends_s, 1e6, count, each) == pytest.approx(period_s, rel=1e-9)


@pytest.mark.parametrize("count", LONG)
@pytest.mark.parametrize("each", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(5))
def test_workers_that_begin_late_and_run_out_of_steps_one_by_one_do_not_count(count, each, seed):
    draw = random.Random(seed)
    begins_s = [draw.uniform(0, LEAD - 1) * 0.5 for _ in range(each)]
    ends_s = shared_queue(count, begins_s, [0.5] * each)
    assert step_time_s(ends_s, ends_s[-1] + 3.0, count, each) == pytest.approx(0.5)


def test_workers_of_different_speed_give_the_rate_of_all_by_the_workers():
    # 1 and 2 steps in a second: 3 for two workers.
    ends_s = shared_queue(600, [0.0, 0.3], [1.0, 0.5])
    assert step_time_s(ends_s, ends_s[-1], 600, 2) == pytest.approx(2 / 3, rel=1e-3)


@pytest.mark.parametrize("count", LONG)
def test_neither_the_first_steps_nor_what_follows_the_last_one_count(count):
    ends_s = [0.2, 0.9, *(1.9 + number for number in range(count - 2))]
    assert step_time_s(ends_s, ends_s[-1] + 5.0, count) == pytest.approx(1.0)
    assert (ends_s[-1] + 5.0) / count != pytest.approx(1.0)


@pytest.mark.parametrize("count", LONG)
@pytest.mark.parametrize("each", [1, 2, 5])
def test_the_unit_of_time_and_the_block_s_begin_make_no_difference(count, each):
    draw = random.Random(count)
    ends_s = sorted(draw.uniform(1, 9) for _ in range(count * each))
    once_s = step_time_s(ends_s, 10.0, count, each)
    assert step_time_s([end_s + 4 for end_s in ends_s], 14.0, count, each) == pytest.approx(once_s)
    assert step_time_s([end_s * 1000 for end_s in ends_s], 10_000.0, count, each) == pytest.approx(once_s * 1000)


@pytest.mark.parametrize("count", SHORT)
@pytest.mark.parametrize("each", [1, 2])
def test_of_a_short_block_the_whole_counts(count, each):
    assert step_time_s([1.0] * (count * each), 7.5, count, each) == 7.5 / count


@pytest.mark.parametrize(("ends", "count", "each"), [(6, 7, 1), (8, 7, 1), (7, 7, 2), (0, 1, 1), (2, 1, 1)])
def test_a_wrong_number_of_ends_is_refused(ends, count, each):
    sentence = rf"^{ends} ends given for {count} steps of {each} worker\(s\): give {count * each}, one a step$"
    with pytest.raises(ValueError, match=sentence):
        step_time_s([1.0] * ends, 1.0, count, each)


class Answers:
    """A cluster that answers as if a step of anything took a second and a block's ends another two."""

    def __init__(self, workers: int, coordinators: bool) -> None:
        self.workers = workers
        self.one_clock = True
        self.protocols = (STOCK, TFSCHED)
        self.coordinators = {TFSCHED: "coordinator0", STOCK: "coordinator1"} if coordinators else {}

        self.busy_s = 0.0
        self.open: set[str] = set()
        self.most_open = 0

    def stolen_s(self) -> float:
        return 0.0

    def networking_busy_s(self) -> float:
        return self.busy_s

    def call(self, to: str = "worker0", do: str = "", count: int = 1, session: str = "", **_: object) -> dict[str, object]:
        if do == "open":
            self.open.add(session)
            self.most_open = max(self.most_open, len(self.open))
        if do == "close":
            self.open.remove(session)
        if do == "plan":
            return {"plan": "{}"}
        if do != "run":
            return {}
        assert session in self.open or session in {COMPUTE, PULL, PUSH}, f"{session} is not open"
        each = self.workers if to.startswith("coordinator") else 1
        self.busy_s += 0.25 * (count + 2.0)
        ends_s = sorted(0.1 * worker + 1.0 + number for worker in range(each) for number in range(count))
        return {"ends_s": ends_s, "block_s": count + 2.0, "finishes_s": [[1.0] * self.workers]}


@pytest.mark.parametrize("coordinators", [False, True])
@pytest.mark.parametrize(("block", "step_s"), [(4, 1.5), (8, 1.0)])
def test_settings_and_bounds_are_measured_alike(coordinators, block, step_s):
    cluster = Answers(3, coordinators)
    runner = Runner(cluster, "toy", "train", find_settings(["tio"]), 0, 0, lambda *_: None)
    runner.open_settings()
    measured = runner.measure(2, block)
    alone = {COMPUTE, PULL, PUSH}
    assert measured.steps_s.keys() == {"tio"} and measured.bounds_s.keys() == alone
    for times_s in (*measured.steps_s.values(), *measured.bounds_s.values()):
        assert times_s == pytest.approx([step_s] * 2)
    assert measured.whole_s == {name: [(block + 2) / block] * 2 for name in ("tio", *alone)}
    assert measured.networking_busy == {"tio": pytest.approx([0.25] * 2)}


SEVERAL = ["vanilla", "tio", "tao", "p3:barrier=false", "pace:barrier=false"]


@pytest.mark.parametrize("coordinators", [False, True])
@pytest.mark.parametrize("warmup", [0, 1, 3])
def test_of_a_single_round_one_setting_is_open_at_a_time(coordinators, warmup):
    cluster = Answers(2, coordinators)
    runner = Runner(cluster, "toy", "train", find_settings(SEVERAL), 0, warmup, lambda *_: None)
    runner.open_settings(one_at_a_time=True)
    assert not cluster.open
    measured = runner.measure(1, 8)
    assert cluster.most_open == 1 and not cluster.open
    assert {name: len(times_s) for name, times_s in measured.steps_s.items()} == dict.fromkeys(SEVERAL, 1)
    assert runner.plans.keys() == {"tao", "pace:barrier=false"}
    assert runner.trace_kept("trace.json")  # opens it again
    assert cluster.open == {"vanilla"}


def test_of_several_rounds_all_settings_stay_open():
    cluster = Answers(2, False)
    runner = Runner(cluster, "toy", "train", find_settings(SEVERAL), 0, 1, lambda *_: None)
    runner.open_settings()
    runner.measure(2, 8)
    assert cluster.open == set(SEVERAL)


@pytest.mark.parametrize("settings", [["vanilla", "tio:barrier=false"], ["vanilla", "p3"], ["p3:barrier=false", "vanilla"]])
def test_piece_after_piece_is_measured_for_p3_across_the_barrier(settings):
    cluster = Answers(1, False)
    runner = Runner(cluster, "toy", "train", find_settings(settings), 0, 1, lambda *_: None, beside=True)
    runner.open_settings(one_at_a_time=True)
    measured = runner.measure(1, 8)
    assert (PIECES in measured.bounds_s) == ("p3:barrier=false" in settings)
    assert not cluster.open
