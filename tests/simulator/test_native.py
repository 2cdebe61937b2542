"""The border to the library: what it refuses, and that a wrong library is said."""

from __future__ import annotations

import ctypes
import pathlib

import pytest

from tests.simulator.scenes import forward_chain
from tfsched.simulator import Cluster, Method, SimulatorError, native
from tfsched.simulator.pieces import schedule
from tfsched.simulator.simulate import make_model


def model() -> dict:
    workload, cluster, method = forward_chain(2, 10, 20), Cluster(), Method("m", "layer", "p3")
    return make_model(workload, cluster, method, schedule(workload, cluster, method, 0), 0, 1, 0)


def test_a_model_runs() -> None:
    assert native.run(model()).begin_us[-1, 0] > 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("op_reads", [[0], [2]]),
        ("op_inputs", [[], [-1]]),
        ("piece_tensors", [[0], []]),
        ("piece_bytes", [1, -1]),
        ("piece_server", [0, 1]),
        ("piece_group", [0, 2]),
        ("worker_host", [9]),
        ("host_bps", [1e9, 0.0]),
        ("op_us", [1.0, float("nan")]),
        ("startup_us", float("nan")),
        ("pull_policy", "none"),
        ("streams", 0),
    ],
)
def test_arrays_that_do_not_fit_are_refused(field: str, value: object) -> None:
    wrong = model()
    wrong[field] = value
    with pytest.raises(SimulatorError, match="the simulation failed: these arrays of the model do not fit"):
        native.run(wrong)


def test_a_library_of_another_version_is_refused() -> None:
    found = native._Result()
    error = native.library().tfsched_sim_run_jobs(ctypes.byref(native._Model(size=8)), 1, ctypes.byref(found))
    assert b"another version" in error


def test_a_missing_library_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "none.so")
    native.library.cache_clear()
    try:
        with pytest.raises(SimulatorError, match=r"cannot be loaded; build it with 'python setup.py build_simulator'"):
            native.library()
    finally:
        native.library.cache_clear()
