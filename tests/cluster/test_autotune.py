"""Tuning a training that runs: no bit changes, all tasks follow, it ends by itself, nothing hangs when a task is lost."""

import csv
import pathlib
import re

import pytest

import tfsched
from tfsched.online import first
from tfsched.tuning import Setting

from .cluster import Cluster, TaskError, wait_until

pytestmark = pytest.mark.timeout(240)
OPTIONS = {"policy": "bytescheduler", "credit_bytes": 250_000}
GRAPHS = ["graph", -1]
STEPS = 60


def in_force(cluster, name):
    stats = cluster.stats(name)
    return [stats["policy"], stats["credit_bytes"]]


def said(cluster, name):
    """The tuner's lines in a task's console."""
    return [line for line in cluster.log(name).splitlines() if "autotune" in line and "asked for by" not in line]


def rows_of(log):
    """The samples in a CSV."""
    with open(log) as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def cluster(nursery):
    with Cluster(nursery=nursery, workers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def untuned(cluster):
    """The losses of training without tuner."""
    cluster.call("worker0", "common.open_session", options=OPTIONS)
    losses = cluster.call("worker0", "autotune.session", steps=STEPS)["losses"]
    assert len(set(losses)) == STEPS  # it really trains
    return losses


def tuned(cluster, steps=STEPS, **arguments):
    cluster.call("worker0", "common.open_session", options=OPTIONS)
    return cluster.call("worker0", "autotune.session", steps=steps, until_end=True, **arguments)


def test_policies_that_need_more_steps_than_a_sample_are_tried_only_where_they_are_named():
    def policies(begun_with, named=None):
        return first.space_of(Setting(0, 1_000_000, begun_with), False, named, first.PIECES, first.CREDITS).policies

    assert policies("bytescheduler") == ("bytescheduler", "p3", "fifo")
    assert policies("tictac") == ("tictac", "bytescheduler", "p3", "fifo")
    assert policies("prophet") == ("prophet", "bytescheduler", "p3", "fifo")
    assert policies("fifo", ("prophet",)) == ("prophet",)


def test_it_ends_at_a_faster_setting_everywhere_and_no_bit_changes(cluster, untuned, tmp_path):
    log, picture, memory = (str(tmp_path / name) for name in ("log.csv", "log.png", "memory.json"))
    files = {"csv": log, "plot": picture, "memory": memory, "model": "mlp"}
    result = tuned(cluster, times="bowl", **files)
    assert result["losses"] == untuned
    assert result["state"] == "decided" and result["changed"] and "less time than under the first" in result["reason"]
    piece_bytes, credit_bytes, policy = result["chosen"]
    assert piece_bytes == 0 and policy == "bytescheduler" and 1_500_000 <= credit_bytes <= 10_000_000
    assert [in_force(cluster, name) for name in cluster.names] == [[policy, credit_bytes]] * 3
    # 5 % of 500 steps.
    assert 0 < result["lost_steps"] < 25
    (line,) = said(cluster, "worker0")
    assert result["reason"] in line and "Tuning has cost the time of" in line
    rows = rows_of(log)
    assert len(rows) == int(re.search(r"(\d+) samples of", result["reason"])[1])
    # What was clearly slower than the best was left behind one sample.
    alone = [float(row["seconds"]) for row in rows if row["policy"] in ("fifo", "p3")]
    assert alone == pytest.approx([0.5] * 2)
    assert pathlib.Path(picture).read_bytes().startswith(b"\x89PNG")
    state = cluster.call("worker0", "autotune.state")
    assert state["state"] == "decided" and state["samples"] == len(rows)

    # What is known is tried second.
    cluster.call("worker0", "configure.change", session="main", policy="graph", credit_bytes=-1)
    again = tuned(cluster, times="bowl", **files)
    assert again["changed"]
    rows = rows_of(log)
    assert next(row for row in rows if row["why"] == "remembered as the best")["credit_bytes"] == str(credit_bytes)
    cluster.call("worker0", "configure.change", session="main", policy="graph", credit_bytes=-1)


def test_where_nothing_is_better_all_is_as_it_was(cluster, untuned):
    cluster.call("worker0", "configure.change", session="main", credit_bytes=3_000_000)
    cluster.call("ps0", "configure.change", policy="p3")  # one task has something of its own
    result = tuned(cluster, times="flat", search="random", samples=30)
    assert result["losses"] == untuned
    assert result["state"] == "decided" and not result["changed"]
    assert [in_force(cluster, name) for name in cluster.names] == [["p3", 3_000_000], *[["graph", 3_000_000]] * 2]
    cluster.call("worker0", "configure.change", session="main", policy="graph", credit_bytes=-1)


def test_without_tfsched_there_is_nothing_to_tune(cluster):
    cluster.call("worker0", "common.open_session", options=None)
    with pytest.raises(TaskError, match=r"config has no tfsched in it, .* make it with tfsched.session_config\(\)"):
        cluster.call("worker0", "autotune.session", steps=1, times="flat")


def test_training_that_ends_before_has_its_first_setting_back(cluster, untuned):
    cluster.call("worker0", "common.open_session", options=OPTIONS)
    result = cluster.call("worker0", "autotune.cut_short", steps=25)
    assert result["losses"] == untuned[:25] and result["state"] == "stopped"
    assert [in_force(cluster, name) for name in cluster.names] == [GRAPHS] * 3


def test_a_task_that_is_lost_ends_the_tuning_and_not_the_training(cluster, untuned):
    """Last: it costs the cluster a worker, which the training does not need but the session sees."""
    cluster.call("worker0", "common.open_session", options=OPTIONS)
    before = said(cluster, "worker0")
    few = {"answer_s": 3.0, "hold_at": 25}
    running = cluster.submit("worker0", "autotune.session", steps=STEPS, times="bowl", until_end=True, **few)

    def searches():
        state = cluster.call("worker0", "autotune.state")
        return state.get("state") == "searching" and state.get("samples", 0) >= 5

    wait_until(searches, 60, "samples")
    cluster.kill("worker1")
    cluster.call("worker0", "autotune.go_on")
    result = running.result(100)
    assert result["losses"] == untuned and result["state"] == "stopped"
    (line,) = [line for line in said(cluster, "worker0") if line not in before]
    assert "autotune stopped, and the first setting is put back: /job:worker/replica:0/task:1" in line
    assert [in_force(cluster, name) for name in ("ps0", "worker0")] == [GRAPHS] * 2


def test_on_a_slow_link_a_hook_finds_that_order_is_faster(nursery):
    # A layer of 262 kB leaves in 8 ms, and computing one takes as long.
    slow = {name: {"TFSCHED_EMULATED_BPS": "262e6"} for name in ("ps0", "worker0")}
    few = {"policies": ["fifo", "bytescheduler"], "credit_bytes": [500_000, 500_000], "samples": 100, "warmup": 3}
    with Cluster(nursery=nursery, environment=slow) as cluster:
        result = cluster.call("worker0", "autotune.monitored", steps=300, options={"policy": "fifo"}, **few)
        assert result["state"] == "decided" and result["chosen"][2] == "bytescheduler", result["reason"]


def test_a_coordinators_fit(nursery):
    with Cluster(nursery=nursery, coordinator=True) as cluster:
        arguments = {"options": OPTIONS, "steps": 320}
        wanted = cluster.call("chief0", "autotune.fit", tuned=False, **arguments)
        got = cluster.call("chief0", "autotune.fit", tuned=True, **arguments)
        assert got.items() >= wanted.items()
        assert got["state"] == "decided" and got["changed"]
        assert [in_force(cluster, name) for name in ("ps0", "worker0")] == [[got["chosen"][2], got["chosen"][1]]] * 2


@pytest.fixture(scope="module")
def three(nursery):
    with Cluster(ps=0, workers=3, nursery=nursery, mirrored=True) as cluster:
        yield cluster


def everywhere(cluster, scenario, **arguments):
    pending = [cluster.submit(name, scenario, **arguments) for name in cluster.names]
    return [one.result(100) for one in pending]


def test_workers_that_all_reduce_take_other_pieces_with_the_same_call(three):
    wanted = everywhere(three, "autotune.all_reduce", tuned=False)
    got = everywhere(three, "autotune.all_reduce", tuned=True)
    assert all(one.items() >= other.items() for one, other in zip(got, wanted, strict=True))
    assert [one["state"] for one in got] == ["decided", "elsewhere", "elsewhere"]
    piece_bytes, credit_bytes, policy = got[0]["chosen"]
    assert piece_bytes >= 50_000  # pieces of 8 kB mean many messages, and the clock counts them
    assert [in_force(three, name) for name in three.names] == [[policy, credit_bytes]] * 3
    stats = [three.stats(name) for name in three.names]
    assert all(one["all_reduces_failed"] == one["packs_stock"] == 0 for one in stats)


def test_keras_3_tunes_itself(nursery):
    with Cluster(ps=0, workers=2, nursery=nursery, mirrored=True) as pair:
        wanted = everywhere(pair, "autotune.keras3", tuned=False)
        got = everywhere(pair, "autotune.keras3", tuned=True)
        assert all(one.items() >= other.items() for one, other in zip(got, wanted, strict=True))
        assert [one["state"] for one in got] == ["decided", "elsewhere"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"policies": ("lifo",)}, "policies to search are lifo"),
        ({"credit_bytes": (5, 1)}, "bounds of credit_bytes are 5, 1"),
        ({"piece_bytes": (5, 1)}, "bounds of partition_bytes are 5, 1"),
        ({"search": "best"}, "The search is 'best'; choose one of bayesian, random, grid"),
        ({"samples": 3}, "The budget is 3 samples; give"),
        ({"lost_steps": -1}, "lost_steps is -1; give 0 or more"),
        ({"memory": "/tmp/m"}, "memory is '/tmp/m' and model is empty; name the model"),
        ({"options": "fifo"}, "autotune got 'fifo' as options; give a tfsched.Options"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_mistake_has_its_sentence(arguments, words):
    for made in (tfsched.autotune, tfsched.AutotuneHook, tfsched.AutotuneCallback):
        with pytest.raises(tfsched.TfschedError, match=re.escape(words)):
            made(**arguments)
