"""The registry of settings."""

import pytest

from tfsched._options import Options
from tfsched.bench import SETTINGS, BenchError, Setting, register_setting
from tfsched.bench.settings import STOCK, TFSCHED, find_settings, for_emulated_link


def test_vanilla_is_stock():
    (vanilla,) = find_settings(["vanilla"])
    assert vanilla == Setting("vanilla", STOCK, None, False)


def test_order_is_kept_and_repeats_dropped():
    assert [s.name for s in find_settings(["tao", "vanilla", "tao"])] == ["tao", "vanilla"]


def test_unknown_setting_lists_the_known_ones():
    with pytest.raises(BenchError, match="'fast' is unknown: choose from vanilla, tio, tao"):
        find_settings(["vanilla", "fast"])


def test_no_setting():
    with pytest.raises(BenchError, match="no setting given"):
        find_settings([])


def test_a_new_setting_is_found_and_a_name_taken_once():
    setting = register_setting(Setting("test-only", TFSCHED, {"ordering": "random"}))
    try:
        assert find_settings(["test-only"]) == [setting]
        with pytest.raises(BenchError, match="registered twice"):
            register_setting(setting)
    finally:
        del SETTINGS["test-only"]


def test_emulated_link_keeps_vanilla_without_a_pass():
    vanilla, tio = find_settings(["vanilla", "tio"])
    assert for_emulated_link(vanilla) == Setting("vanilla", TFSCHED, None)
    assert for_emulated_link(tio) is tio


def test_a_name_may_change_options_of_the_preset():
    (setting,) = find_settings(["tio:credit_bytes=1000:policy=fifo"])
    assert setting.name == "tio:credit_bytes=1000:policy=fifo"
    assert setting.options == {"ordering": "tio", "policy": "fifo", "credit_bytes": 1000}


def test_whole_numbers_and_booleans_become_what_the_options_want():
    (setting,) = find_settings(["tio:strict=true:seed=3"])
    assert setting.options == {"ordering": "tio", "policy": "tictac", "strict": True, "seed": 3}
    (setting,) = find_settings(["tio:strict=False:plan=7"])
    assert setting.options == {"ordering": "tio", "policy": "tictac", "strict": False, "plan": "7"}


def test_the_systems_presets_are_what_their_papers_say():
    assert SETTINGS["tictac"].options == SETTINGS["tio"].options
    assert SETTINGS["p3"].options["partition_bytes"] == 200_000
    kept = SETTINGS["bytescheduler"]
    crossing = SETTINGS["bytescheduler+barrier-crossing"]
    # It is what tfsched does if it is asked to cross the barrier: pieces and credit fit the link.
    assert Options(**crossing.options).settled(1e9) == Options(barrier=False).settled(1e9)
    assert SETTINGS["prophet"].options == {**kept.options, "policy": "prophet"} and not SETTINGS["prophet"].needs_plan
    assert SETTINGS["prophet-plan"].options["ordering"] == "prophet" and SETTINGS["prophet-plan"].needs_plan
    for planner in ("mg-wfbp", "pace", "us-byte", "dynacomm", "buckets", "optimal"):
        assert SETTINGS[planner].options["ordering"] == planner and SETTINGS[planner].needs_plan
    assert [setting.name for setting in SETTINGS.values() if setting.crosses_barrier] == [crossing.name]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("tio:strict=maybe", "strict is 'maybe', give true or false"), ("tio:seed=x", "seed is 'x', give a whole number")],
)
def test_values_of_the_wrong_kind_are_told(name, sentence):
    with pytest.raises(BenchError, match=sentence):
        find_settings([name])


@pytest.mark.parametrize(
    "name", ["tio:credit_bytes=-2", "tio:nope=1", "tio:policy=nope", "vanilla:credit_bytes=1", "nope:seed=1"]
)
def test_options_of_no_use_are_refused(name):
    with pytest.raises(BenchError, match=name.split(":")[0]):
        find_settings([name])
