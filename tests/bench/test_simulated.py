"""The bench's settings as the simulator's methods."""

import dataclasses

import pytest

from tfsched import TfschedError
from tfsched.bench.settings import SETTINGS, find_settings
from tfsched.bench.simulated import method_of
from tfsched.simulator import Cluster, Workload, methods, profiles, simulate


def of(name, all_reducing=False):
    (setting,) = find_settings([name])
    return method_of(setting, all_reducing)


def test_options_that_a_setting_changes_are_the_methods():
    changed = of("p3:barrier=false:credit_bytes=7")
    wanted = {"policy": "p3", "partition_bytes": 200_000, "credit_bytes": 7, "barrier": False}
    assert {key: getattr(changed, key) for key in wanted} == wanted
    assert changed.name == "p3:barrier=false:credit_bytes=7"
    assert of("vanilla") == methods()["vanilla"]
    # Planners see gradients, and what they decide about sizes stays.
    given = {"policy": "bytescheduler", "credit_bytes": 1_000_000, "barrier": True}
    assert of("pace") == dataclasses.replace(methods()["pace"], **given)


def test_the_order_of_all_reduces_is_that_of_the_layers():
    assert of("tio", all_reducing=True).ordering == "layer" and of("tio").ordering == "tio"


@pytest.mark.parametrize("architecture", ["ps", "allreduce"])
def test_every_setting_is_simulated_between_its_bounds(architecture):
    table = profiles.load("mlp24")
    cluster = Cluster(workers=2, architecture=architecture, bandwidth_bps=4e9, server_bandwidth_bps=8e9)
    compute_s = (table.forward_us + table.backward_us) / 1e6
    for name in SETTINGS:
        if name == "vanilla" and architecture == "allreduce":
            continue  # stock TensorFlow's all-reduce is not simulated
        step_s = simulate(Workload.from_layers(table), cluster, of(name, architecture != "ps"), iterations=2).median_us / 1e6
        assert compute_s < step_s < compute_s + 4 * 100e6 * 8 / 4e9, name


def test_what_no_method_has_is_refused():
    with pytest.raises(TfschedError, match="policy"):
        method_of(dataclasses.replace(SETTINGS["tio"], options={"policy": "fast"}))
