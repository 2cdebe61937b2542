"""Scalars for TensorBoard: the same from both Kerases and a MonitoredSession, into a directory or a writer."""

import pathlib

import pytest
import tensorflow as tf

import tfsched
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.timeout(240)
# Not 0 for a moment only, and so in some files.
MOMENTARY = {f"tfsched/{name}" for name in ("queue_depth", "on_wire_bytes", "groups")}
KINDS = ("directory", "v1", "v2")


@pytest.fixture(scope="module")
def cluster(nursery):
    with Cluster(nursery=nursery) as cluster:
        yield cluster


def written(path):
    """Tag -> {step: value}."""
    found = {}
    for file in sorted(pathlib.Path(path).glob("events*")):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            for value in event.summary.value:
                scalar = float(tf.make_ndarray(value.tensor)) if value.HasField("tensor") else value.simple_value
                found.setdefault(value.tag, {})[event.step] = scalar
    return {tag: values for tag, values in found.items() if tag not in MOMENTARY}


@pytest.fixture(scope="module")
def from_sessions(cluster, tmp_path_factory):
    """Kind of writer -> what the hook wrote; and that it changes no step."""
    wanted = cluster.call("worker0", "tests.control.scenarios.monitored", kind=None, path=None, steps=9, every_steps=1)
    made = {}
    for kind in KINDS:
        path = str(tmp_path_factory.mktemp(kind))
        arguments = {"kind": kind, "path": path, "steps": 9, "every_steps": 3}
        assert cluster.call("worker0", "tests.control.scenarios.monitored", **arguments) == wanted
        made[kind] = written(path)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_writes_every_few_steps(from_sessions, kind):
    tags = from_sessions[kind]
    assert {"tfsched/seconds_per_step", "tfsched/bypassed_bytes_per_second", "tfsched/servers"} <= tags.keys()
    assert list(tags["tfsched/seconds_per_step"]) == [4, 7]  # from the first step's end on
    assert all(value > 0 for value in tags["tfsched/seconds_per_step"].values())
    assert all(value > 0 for value in tags["tfsched/bypassed_bytes_per_second"].values())
    assert set(tags["tfsched/servers"].values()) == {1.0}
    assert "tfsched/all_reduces_per_second" not in tags  # there was none
    assert tags.keys() == from_sessions["directory"].keys()


@pytest.mark.parametrize(("library", "kind"), [("keras", "directory"), ("tf_keras", "v2"), ("keras", "v1")])
def test_fit_writes_the_same(cluster, from_sessions, tmp_path, library, kind):
    arguments = {"library": library, "kind": kind, "epochs": 2}
    wanted = cluster.call("worker0", "tests.control.scenarios.fit", **arguments, path=None, every_steps=1)
    got = cluster.call("worker0", "tests.control.scenarios.fit", **arguments, path=str(tmp_path), every_steps=2)
    assert got == wanted
    tags = written(tmp_path)
    assert tags.keys() == from_sessions["directory"].keys()
    steps = list(tags["tfsched/seconds_per_step"])
    if library == "tf_keras":  # Keras 3 may tell of several batches at a time
        assert steps == [3, 5, 7, 9]
    assert steps and all(step <= 10 and later - step >= 2 for step, later in zip(steps, [*steps[1:], 99], strict=True))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((3,), "cannot be written to 3; give a directory"),
        (("/tmp/x", 0), "every_steps is 0"),
        (("/tmp/x", 1.5), "every_steps is 1.5"),
        (("/tmp/x", True), "every_steps is True"),
    ],
)
@pytest.mark.parametrize("made", [tfsched.ScalarsCallback, tfsched.ScalarsHook])
def test_each_mistake_has_its_sentence(made, arguments, words):
    with pytest.raises(tfsched.TfschedError, match=words):
        made(*arguments)
