"""The result object, the table and the pictures, from given step times."""

import io
import json
import os

import pytest
from rich.console import Console

from tfsched.bench import busy, plots, report, stolen
from tfsched.bench.claims import check_claims, print_claims
from tfsched.bench.op_times import StepSample
from tfsched.bench.runner import BESIDE, COMPUTE, PULL, PUSH, Measurement

FACTS = {
    "model": "mlp24",
    "api": "session",
    "phase": "forward",
    "ps": 1,
    "workers": 2,
    "bandwidth_bps": 1e9,
    "link": "netns",
    "batch": 100,
    "ps_bytes": {"/job:ps/task:0": 96_000_000},
    "threads": {"worker_intra_op": 1, "worker_inter_op": 0, "cores": 2, "apart": False},
    "tensorflow": "2.21.0",
    "notes": ["a note"],
}


def measurement(**names) -> Measurement:
    return Measurement(
        {name: steps_s for name, steps_s in names.items()},
        {name: [[step_s, step_s * 0.9] for step_s in steps_s] for name, steps_s in names.items()},
        {COMPUTE: [0.7, 0.8, 0.9], PULL: [1.0, 1.0, 1.0]},
        {name: [0.0] * len(steps_s) for name, steps_s in names.items()},
        {**names, COMPUTE: [0.7, 0.8, 0.9], PULL: [1.0, 1.0, 1.0]},
    )


def test_result_has_exactly_the_promised_fields():
    result = report.build_result(measurement(vanilla=[1.6, 1.5, 1.7], tio=[1.0, 1.0, 1.1]), FACTS)
    for key in ("model", "api", "phase", "ps", "workers", "bandwidth_bps", "link", "batch", "tensorflow"):
        assert result[key] == FACTS[key]
    assert result["bounds"]["compute_s"] == pytest.approx(0.8)
    assert result["bounds"]["communication_s"] == pytest.approx(1.0)
    assert result["bounds"]["lower_s"] == pytest.approx(1.0)
    assert result["bounds"]["upper_s"] == pytest.approx(1.8)
    assert result["bounds"]["compute_p95_over_p50"] == pytest.approx(0.89 / 0.8)
    tio = result["settings"]["tio"]
    assert {"median_s", "p95_s", "steps_s", "efficiency", "ratio_to_vanilla", "straggler"} <= set(tio)
    assert tio["median_s"] == pytest.approx(1.0)
    assert tio["p95_s"] == pytest.approx(1.09)
    assert tio["efficiency"] == pytest.approx(1.0)
    assert tio["ratio_to_vanilla"] == pytest.approx(1.6)
    assert tio["straggler"] == pytest.approx(0.1)
    assert tio["throughput"] == pytest.approx(200)
    assert result["settings"]["vanilla"]["efficiency"] == pytest.approx(0.25)
    assert result["settings"]["vanilla"]["ratio_to_vanilla"] == 1.0
    json.dumps(result, allow_nan=False)


def test_a_long_name_is_shown_whole():
    name = "tio:credit_bytes=1000000:policy=fifo:strict=true:seed=3"
    console = Console(width=110, record=True, file=io.StringIO())
    report.print_results([report.build_result(measurement(**{name: [1.0]}), FACTS)], console)
    cells = [line.split("│")[1].strip() for line in console.export_text().splitlines() if line.startswith("│")]
    assert "".join(cells) == name


def test_what_the_machines_neighbours_took_is_told_and_the_calm_steps_apart():
    disturbed = measurement(vanilla=[2.0] * 6, tio=[1.0, 1.0, 1.0, 1.0, 1.04, 1.4])
    disturbed.stolen_s["tio"] = [0.0, 0.01, 0.0, 0.0, 0.0, 0.3]
    result = report.build_result(disturbed, FACTS)
    assert result["settings"]["tio"]["stolen_s"] == disturbed.stolen_s["tio"]
    assert result["settings"]["tio"]["p95_over_p50"] == pytest.approx(1.31)
    assert result["settings"]["tio"]["p95_over_p50_calm"] == pytest.approx(1.032)
    console = Console(width=110, record=True, file=io.StringIO())
    report.print_results([result], console)
    text = " ".join(console.export_text().split())
    assert "vanilla 0.0% (6 of 6 steps calm, p95/p50 1.000); tio 4.8% (5 of 6 steps calm, p95/p50 1.032)" in text


def test_an_undisturbed_run_says_nothing_of_neighbours():
    console = Console(width=110, record=True, file=io.StringIO())
    report.print_results([report.build_result(measurement(vanilla=[1.6, 1.6, 1.7]), FACTS)], console)
    assert "calm" not in console.export_text()


def test_settings_that_keep_the_networkings_cores_busy_are_named():
    measured = measurement(vanilla=[1.6, 1.5, 1.7], tio=[1.0, 1.0, 1.1])
    assert report.build_result(measured, FACTS)["settings"]["tio"]["networking_busy"] is None
    measured.networking_busy = {"vanilla": [0.4, 0.3, 0.35], "tio": [0.95, 0.92, 0.8]}
    result = report.build_result(measured, FACTS)
    assert result["settings"]["vanilla"]["networking_busy"] == pytest.approx(0.35)
    console = Console(width=110, record=True, file=io.StringIO())
    report.print_results([result], console)
    text = " ".join(console.export_text().split())
    assert "the cores that do the networking were busy nearly all the time (tio 92%)" in text
    measured.networking_busy["tio"] = [0.7, 0.7, 0.7]
    assert busy.note(report.build_result(measured, FACTS)["settings"]) == []


def test_a_core_is_busy_unless_it_is_idle_or_waits_for_a_disk(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 20 500 300 2 3 4 8 0\ncpu1 1 1 1 1 1 1 1 1 0 0\nintr 5\n")
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert busy.busy_s([0], str(stat)) == pytest.approx(40 * tick_s)
    assert busy.busy_s([0, 1], str(stat)) == pytest.approx(23 * tick_s)
    assert busy.busy_s([0], str(tmp_path / "missing")) == 0.0


def test_stolen_time_is_that_of_the_cores_in_use(tmp_path):
    stat = tmp_path / "stat"
    stat.write_text("cpu  9 9 9 9 9 9 9 600 0 0\ncpu0 1 1 1 1 1 1 1 250 0 0\ncpu1 1 1 1 1 1 1 1 350 0 0\nintr 5\n")
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert stolen.stolen_s([0, 1], str(stat)) == pytest.approx(600 * tick_s)
    assert stolen.stolen_s([1], str(stat)) == pytest.approx(350 * tick_s)
    assert stolen.stolen_s([0], str(tmp_path / "missing")) == 0.0
    before_s = stolen.stolen_s()
    assert stolen.stolen_s() >= before_s >= 0.0


def test_blocks_and_an_uneven_load_are_told():
    training = measurement(vanilla=[1.6, 1.6], tio=[1.0, 1.0])
    training.block = 5
    training.bounds_s[PUSH] = training.whole_s[PUSH] = [0.9, 0.9]
    facts = {**FACTS, "phase": "train", "ps": 2, "ps_bytes": {"/job:ps/task:0": 300, "/job:ps/task:1": 100}}
    result = report.build_result(training, facts)
    assert result["block"] == 5
    assert result["imbalance"] == 1.5
    assert result["bounds"]["push_s"] == pytest.approx(0.9)
    assert result["settings"]["tio"]["min_s"] == 1.0
    console = Console(width=110, record=True, file=io.StringIO())
    report.print_results([result], console)
    text = " ".join(console.export_text().split())
    assert "push alone 0.900 s" in text
    assert "times are means over blocks of 5 steps" in text
    assert "with ends" not in text
    assert "the fullest PS holds 1.50 times the mean" in text


def test_of_short_blocks_the_figures_with_ends_are_the_same():
    result = report.build_result(measurement(vanilla=[1.6, 1.5, 1.7], tio=[1.0, 1.0, 1.1]), FACTS)
    assert result["bounds"]["lower_with_ends_s"] == result["bounds"]["lower_s"]
    for row in result["settings"].values():
        assert row["with_ends_s"] == row["median_s"]
        assert row["ratio_to_vanilla_with_ends"] == row["ratio_to_vanilla"]
        assert row["bound_ratio_with_ends"] == row["bound_ratio"]


def test_of_long_blocks_the_steady_state_is_shown_and_the_ends_beside_it():
    training = measurement(vanilla=[1.6, 1.6], tio=[1.0, 1.02])
    training.block = 7
    training.whole_s.update({"vanilla": [1.65, 1.65], "tio": [1.09, 1.11], PULL: [1.1] * 3})
    result = report.build_result(training, FACTS)
    assert result["bounds"]["lower_s"] == pytest.approx(1.0)
    assert result["bounds"]["lower_with_ends_s"] == pytest.approx(1.1)
    tio = result["settings"]["tio"]
    assert tio["bound_ratio"] == pytest.approx(1.01)
    assert tio["ratio_to_vanilla"] == pytest.approx(1.6 / 1.01)
    assert tio["with_ends_s"] == pytest.approx(1.1)
    assert tio["bound_ratio_with_ends"] == pytest.approx(1.0)
    assert tio["ratio_to_vanilla_with_ends"] == pytest.approx(1.5)
    table = report.table_of(result)
    headings = [str(column.header) for column in table.columns]
    assert headings[headings.index("/ lower") + 1] == "/ lower, with ends"
    column = table.columns[headings.index("/ lower, with ends")]
    assert list(column.cells) == ["1.500", "1.000"]
    assert "steady state in blocks of 7 steps, from the end of step 3 on" in str(table.caption)
    json.dumps(result, allow_nan=False)


def test_without_vanilla_there_is_no_ratio():
    result = report.build_result(measurement(tio=[1.0]), {**FACTS, "bandwidth_bps": None})
    assert result["settings"]["tio"]["ratio_to_vanilla"] is None
    assert result["settings"]["tio"]["ratio_to_vanilla_with_ends"] is None
    assert json.loads(json.dumps(result))["bandwidth_bps"] is None


def test_bounds_of_training_count_both_directions():
    bounds = report.bounds_of({COMPUTE: [1.5], PULL: [1.0], PUSH: [1.1]})
    assert bounds["communication_s"] == 1.1
    assert bounds["lower_s"] == 1.5
    assert bounds["upper_s"] == pytest.approx(3.6)


def test_table_shows_settings_bounds_and_notes():
    console = Console(width=110, record=True, file=io.StringIO())
    report.print_results([report.build_result(measurement(vanilla=[1.6], tio=[1.0]), FACTS)], console)
    text = console.export_text()
    for part in ("vanilla", "tio", "1.60", "lower 1.000 s", "upper 1.800 s", "note: a note", "default inter-op"):
        assert part in text.replace("\n", " ")


def test_computing_beside_communication_is_told_where_it_was_measured():
    measured = measurement(vanilla=[1.6])
    assert report.build_result(measured, FACTS)["bounds"]["beside_s"] is None
    measured.bounds_s[BESIDE] = measured.whole_s[BESIDE] = [0.9, 1.0, 1.1]
    result = report.build_result(measured, FACTS)
    assert result["bounds"]["beside_s"] == pytest.approx(1.0)
    assert result["bounds"]["lower_s"] == pytest.approx(1.0)  # of what ran alone
    assert "compute beside communication 1.000 s" in str(report.table_of(result).caption)


def samples() -> list[StepSample]:
    return [StepSample(1.8 - 0.1 * k, 0.8 + 0.01 * (k % 2), {"in": 1.0, "out": 0.0}) for k in range(8)]


def test_pictures_are_written(tmp_path):
    result = report.build_result(measurement(vanilla=[1.6, 1.5], tio=[1.0, 1.1]), FACTS)
    result["claims"] = check_claims(samples(), {"vanilla": [1.6, 1.5], "tio": [1.0, 1.1]})
    plots.save_plot([result, result], str(tmp_path / "steps.png"))
    plots.save_claims_plot([result], str(tmp_path / "claims.png"))
    for name in ("steps.png", "claims.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    console = Console(width=110, record=True, file=io.StringIO())
    print_claims(result, console)
    assert "0.98" in console.export_text()


def test_claims_regress_each_steps_own_efficiency():
    claims = check_claims(samples(), {"vanilla": [2.0, 1.0], "tio": [1.0, 1.0]})
    assert claims["steps"] == 8
    # E comes from bounds that differ from step to step: near a line, but not on it.
    assert 0.9 < claims["r_squared"] < 1
    assert claims["slope"] > 0
    assert claims["p95_normalised"]["tio"] == 1.0
    assert claims["p95_normalised"]["vanilla"] == pytest.approx(1 / 1.95)
    json.dumps(claims, allow_nan=False)
