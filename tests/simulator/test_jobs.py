"""Trainings that share links: closed forms, and what must hold for any."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest

from tests.simulator.scenes import BPS, forward_chain, random_cluster, random_layers, random_method
from tfsched.simulator import Cluster, Control, Job, Jobs, Method, SimulatorError, Workload, simulate

LAYER = Method("layer", "layer", "p3")


def forward_job(name: str, op_us: float, size_bytes: int, **fields: object) -> Job:
    """One layer: a step pulls for `size_bytes` µs and then computes for `op_us`."""
    return Job(name, forward_chain(1, op_us, size_bytes), Cluster(bandwidth_bps=BPS), LAYER, **fields)


def test_equal_shares_cost_what_both_send_at_once() -> None:
    beside = Jobs([forward_job("a", 50, 50), forward_job("b", 50, 50)]).beside()
    assert beside.iteration_us == pytest.approx({"a": 150, "b": 150})
    assert beside.speed == pytest.approx({"a": 2 / 3, "b": 2 / 3})
    assert beside.utilisation["servers0 sending"] == pytest.approx(2 / 3, abs=0.02)


def test_a_shift_by_half_a_step_takes_turns() -> None:
    jobs = Jobs([forward_job("a", 50, 50), forward_job("b", 50, 50)])
    beside = jobs.beside([Control(), Control(start_us=50)])
    assert beside.iteration_us == pytest.approx({"a": 100, "b": 100})
    assert beside.mean_speed == pytest.approx(1) == jobs.bound()
    assert beside.begin_us["b"][:3] == pytest.approx([50, 150, 250])
    assert beside.utilisation["servers0 sending"] == pytest.approx(1)


def test_what_is_sooner_is_as_alone_and_the_others_take_the_rest() -> None:
    jobs = Jobs([forward_job("a", 50, 100), forward_job("b", 50, 100)], iterations=60)
    beside = jobs.beside([Control(priority=0), Control(priority=1)])
    # The link is free for 50 of 150 µs: b's 100 take two of a's steps, and it computes while a sends.
    assert beside.iteration_us == pytest.approx({"a": 150, "b": 300}, rel=0.02)
    assert beside.mean_speed == pytest.approx(0.75, rel=0.02) == jobs.bound()


def test_the_intense_job_goes_first() -> None:
    jobs = Jobs([forward_job("a", 10, 100), forward_job("b", 90, 100), forward_job("c", 50, 100)])
    assert jobs.intensity() == pytest.approx([0.1, 0.9, 0.5])
    assert [control.priority for control in jobs.intense_first()] == [2, 0, 1]


def test_a_cap_is_the_core_s() -> None:
    """A token bucket lets a message go when the last one is paid for, and what has gone has the whole link."""
    jobs = Jobs([Job("a", forward_chain(20, 0, 1000), Cluster(bandwidth_bps=BPS), LAYER, "none")])
    assert jobs.beside().iteration_us["a"] == pytest.approx(20_000)
    capped = jobs.beside([Control(rate_bps=int(BPS / 4))])
    assert capped.iteration_us["a"] == pytest.approx(80_000, rel=0.01)


def drawn_job(name: str, draw: random.Random, shares: str, most: int = 4) -> Job:
    cluster = random_cluster(draw)
    while cluster.architecture == "ring":
        cluster = random_cluster(draw)
    cluster = cluster.replace(bandwidth_bps=BPS, server_bandwidth_bps=None, colocated=False)
    rows = random_layers(draw, most)
    while not any(row.parameter_bytes for row in rows):
        rows = random_layers(draw, most)
    return Job(name, Workload.from_layers(rows, "train"), cluster, random_method(draw), shares)


def test_one_job_is_what_simulate_says() -> None:
    for seed in range(30):
        job = drawn_job("a", random.Random(seed), "all")
        # Elsewhere steps overlap, and a run's last ones have no next ones beside them.
        job = dataclasses.replace(job, cluster=job.cluster.replace(barrier=True, synchronous=True))
        jobs = Jobs([job], iterations=4, warmup=1, seed=seed)
        expected_us = simulate(job.workload, job.cluster, job.method, iterations=4, warmup=1, seed=seed).iteration_us
        assert jobs.alone[0].iteration_us == pytest.approx(sum(expected_us) / 4), seed
        times_us = [end - begin for begin, end in itertools.pairwise(jobs.beside().begin_us["a"])]
        if job.cluster.architecture == "ps":  # workers that exchange begin their steps by themselves
            assert times_us[1:5] == pytest.approx(expected_us), seed


@pytest.mark.parametrize("priorities", [(0, 0, 0), (2, 0, 1)])
def test_jobs_on_separate_links_are_as_alone(priorities: tuple[int, ...]) -> None:
    for seed in range(15):
        draw = random.Random(seed)
        drawn = [drawn_job(name, draw, "none") for name in "abc"]
        together = Jobs(drawn, iterations=3, warmup=1, seed=seed).beside([Control(priority=p) for p in priorities])
        assert together.utilisation == {}
        for i, job in enumerate(drawn):
            alone = Jobs([job], iterations=3, warmup=1, seed=seed + i).beside().begin_us[job.name]
            steps = len(alone) // 2  # the last ones have no next ones beside them
            assert together.begin_us[job.name][:steps] == pytest.approx(alone[:steps], rel=1e-9, abs=1e-6), (seed, job.name)


def test_together_they_send_no_more_than_the_link_carries() -> None:
    """Everything arrives, in no less time than both directions of the shared link need for it."""
    for seed in range(30):
        draw = random.Random(seed)
        drawn = [drawn_job(name, draw, "servers") for name in "abc"]
        drawn = [dataclasses.replace(job, cluster=job.cluster.replace(architecture="ps", servers=1)) for job in drawn]
        jobs = Jobs(drawn, iterations=3, warmup=1, seed=seed)
        controls = [Control(draw.randint(0, 2), draw.choice([0, 500])) for _ in drawn]
        beside = jobs.beside(controls)
        for job in drawn:
            steps = len(beside.begin_us[job.name]) - 1
            pulled = sum(p.size_bytes for p in job.workload.parameters if p.pulled)
            pushed = sum(p.size_bytes for p in job.workload.parameters if p.made_by)
            assert beside.moved_bytes[job.name] == steps * job.cluster.workers * (pulled + pushed), seed
        assert sum(beside.moved_bytes.values()) <= 2 * beside.end_us * BPS / 8e6 * (1 + 1e-9), seed
        assert beside == jobs.beside(controls)  # deterministic


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: forward_job("a", 1, 1, shares="switch"), "job 'a' shares 'switch'; give one of none, servers"),
        (lambda: Job("a", forward_chain(1, 1, 1), Cluster(architecture="ring"), LAYER), "has the architecture ring"),
        (lambda: Control(priority=-1), "priority is -1; give a whole number from 0 to 1000"),
        (lambda: Control(start_us=-1.0), "start_us is -1"),
        (lambda: Jobs([]), "there is no job, or two have the same name"),
        (lambda: Jobs([forward_job("a", 1, 1)] * 2), "there is no job, or two have the same name"),
        (lambda: Jobs([forward_job("a", 1, 1)], iterations=0), "iterations is 0; give a whole number from 1 to 100000"),
        (lambda: Jobs([forward_job("a", 0, 0)]), "a step of one of the jobs takes no time"),
        (lambda: Jobs([forward_job("a", 1, 1)]).beside([]), "there are 0 controls for 1 jobs; give one for each"),
        (
            lambda: Jobs(
                [forward_job("a", 1, 1), Job("b", forward_chain(1, 1, 1), Cluster(bandwidth_bps=2 * BPS), LAYER)],
            ),
            "job 'b' gives the shared host servers0 1.6e\\+07 bit/s, another one 8e\\+06; give it one bandwidth",
        ),
    ],
)
def test_mistakes_are_one_sentence(make: object, message: str) -> None:
    with pytest.raises(SimulatorError, match=message):
        make()  # type: ignore[operator]
