"""The benchmark programs: their choices, and one small run of each."""

import contextlib
import importlib.util
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
from types import ModuleType

import pytest

from tfsched.bench import inputs, predicting
from tfsched.bench.settings import find_settings
from tfsched.bench.testbed import netns_available

# A program that takes 40 s took over 100 s on a machine that had other work.
LIMIT_S = 280
pytestmark = pytest.mark.timeout(LIMIT_S + 20)

BENCHMARKS = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def tasks_without_extras() -> None:
    """Benchmarks are free to use extras; that of all other tests here takes them away."""


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize(
    ("bandwidth_bps", "model"), [(1e8, "mlp4x1000"), (4e8, "mlp10x1000"), (1e9, "mlp24x1000"), (None, "mlp24x1000")]
)
def test_slow_links_get_fewer_layers(bandwidth_bps, model):
    assert load("grids").model_for(bandwidth_bps) == model


def test_the_commands_of_grids_are_those_of_the_bench():
    grids = load("grids")
    for grid in grids.GRIDS.values():
        words = shlex.split(grids.command_of(grid, "100mbit"))
        settings = find_settings(words[words.index("--settings") + 1].split(","))
        assert [setting.name for setting in settings[:2]] == ["vanilla", grid.setting]
        given = [(setting.options["partition_bytes"], setting.options["credit_bytes"]) for setting in settings[2:]]
        assert given == list(grids.PAIRS)


def test_a_grid_says_how_far_the_default_is_from_the_best():
    grids = load("grids")
    grid = grids.GRIDS["servers"]
    medians_s = {"vanilla": 4.0, grid.setting: 2.2, **{grids.name_of(grid, pair): 2.4 for pair in grids.PAIRS}}
    medians_s[grids.name_of(grid, grids.PAIRS[3])] = 2.0
    settings = {name: {"median_s": median_s, "bound_ratio": median_s / 2} for name, median_s in medians_s.items()}
    result = {"bandwidth_bps": 1e9, "model": "m", "batch": 8, "bounds": {"lower_s": 2.0}, "settings": settings}
    *_, row = grids.table(grid, {"1gbit": {"result": result}})
    ratios = ["2.00", "1.10", "1.20", "1.20", "1.20", "1.00", "1.20", "1.20", "1.20", "1.100"]
    assert row == f"| {' | '.join(['1 Gbit/s', 'm, batch 8', '2.000 s', *ratios])} |"


def test_the_page_of_grids_is_what_was_measured():
    grids = load("grids")
    assert grids.PAGE.read_text() == grids.render()
    files = sorted(grids.KEPT.glob("*.json"))
    assert files
    for path in files:
        for bandwidth, kept in json.loads(path.read_text()).items():
            assert kept["command"] == grids.command_of(grids.GRIDS[path.stem], bandwidth)


def test_the_cost_of_a_setting_on_an_idle_graph():
    printed = run(
        "barrier_overhead", *("--variables", "2", "--kept", "vanilla", "--crossed", "tio", "--block", "5", "--blocks", "2")
    )
    (row,) = [line for line in printed.splitlines() if line.startswith("| 2 |")]
    variables, kept_us, crossed_us, added_us, each_us = (float(cell.replace(",", "")) for cell in row.strip("| ").split("|"))
    assert kept_us > 0 and crossed_us > 0
    assert added_us == pytest.approx(crossed_us - kept_us, abs=2)
    assert each_us == pytest.approx(added_us / variables, abs=1)


@pytest.mark.parametrize("where", [(), ("--connected",)], ids=["alone", "connected"])
def test_function_overhead_finds_the_graph_unchanged(where):
    printed = run("function_overhead", "--calls", "5", "--turns", "6", "--processes", "1", *where)
    assert all(f"| {way} | " in printed for way in ("stock", "disabled", "enabled"))
    assert "traced graph: unchanged" in printed


def test_chunks_pay_from_the_size_on_from_which_all_are_as_quick_as_the_whole():
    break_even = load("partition_break_even").break_even
    assert break_even({0: 10.0, 1: 12.0, 2: 10.0, 4: 8.0, 8: 11.0}) == 2
    assert break_even({0: 10.0, 1: 9.0, 2: 11.0, 4: 8.0}) == 4
    assert break_even({0: 10.0, 1: 11.0, 2: 10.5}) is None


def test_chunks_that_cost_nothing_always_pay_and_dear_ones_never():
    benchmark = load("partition_break_even")
    free = benchmark.steps_us("mlp24", 10, 0, [65_536, 1 << 20])
    assert free[65_536] < free[1 << 20] < free[0]
    dear = benchmark.steps_us("mlp24", 10, 1e5, [65_536, 1 << 20])
    assert benchmark.break_even(dear) is None


def test_server_memory_compares_what_a_server_holds():
    printed = run("server_memory", "--workers", "1", "--layers", "4", "--steps", "4", "--rounds", "1")
    row = printed.splitlines()[-1]
    assert row.startswith("| 1 | ") and row.count(" MB") == 4
    assert all(float(text.removesuffix(" MB")) > 4 for cell in row.split("|")[2:4] for text in cell.strip().split(", "))


def test_new_memory_is_written_gib_by_gib():
    rows = [line.split("|") for line in run("new_memory", "--gib", "0.1").splitlines()[2:]]
    assert [row[1].strip() for row in rows] == ["1"]
    assert all(float(cell) > 0 for cell in rows[0][2:4])


def test_every_page_of_results_shows_what_the_listed_commands_measured():
    results = load("results")
    rows = results.manifest()
    kept = {row.name: found for row in rows if (found := results.kept(row)) is not None}
    assert kept
    for row in rows:
        assert row.name not in kept or kept[row.name]["command"] == row.command
    assert sorted(path.stem for path in results.KEPT.glob("*.json")) == sorted(kept)
    assert results.PAGE.read_text() == results.render(rows)
    lines, readme = results.readme_lines(rows), results.README.read_text()
    assert lines and readme == results.with_table(readme, results.readme_table(lines))
    assert results.PICTURE.read_text() == results.picture(lines)
    papers, table = results.PAPERS.read_text(), results.papers_table()
    assert table.count("\n| ") == 1 + 3 and papers == results.with_table(papers, table)
    simulator, table = results.SIMULATOR.read_text(), results.predictions_table(rows)
    predicting = sum("--predict" in row.command.split() for row in rows if row.name in kept)
    assert table.count("\n| ") == 1 + predicting and simulator == results.with_table(simulator, table)


def test_the_planners_are_measured_on_servers_and_all_reduces_at_two_bandwidths_each():
    results = load("results")
    rows = results.planners_table(results.manifest())[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    places = {(hosts, model) for hosts, model, *_ in cells}
    models = ("mlp24", "resnet50", "vgg16", "transformer")
    assert places == {(hosts, model) for hosts in ("1 worker, 1 parameter server", "2 workers") for model in models}
    assert len({tuple(row[:3]) for row in cells}) == len(cells) == 2 * len(places)
    assert all(sum(map(bool, row)) >= 3 + 11 for row in cells)


def test_predictions_of_the_results_are_those_of_the_simulator():
    """Of all rows whose inputs are kept; a prediction does not depend on the machine."""
    results = load("results")
    found = sorted(results.INPUTS.glob("*/*.json.gz"))
    assert found
    for path in found:
        kept = json.loads((results.KEPT / f"{path.parent.name}.json").read_text())["results"]
        (result,) = (one for one in kept if path.name == f"{one['model']}-{one['workers']}.json.gz")
        trace, plans = inputs.load(str(path))
        quick = {"prophet-plan:barrier=false", "mg-wfbp:barrier=false", "optimal:barrier=false"}
        some = {name: setting for name, setting in result["settings"].items() if name in quick}
        assert some
        for name, steps_s in predicting.predict({**result, "settings": some}, trace, plans).items():
            assert sum(steps_s) / len(steps_s) == pytest.approx(some[name]["predicted_s"], rel=1e-9), (path, name)


def test_a_row_is_predicted_again_from_what_was_kept(monkeypatch, tmp_path):
    results = load("results")
    row = next(row for row in results.manifest() if (results.INPUTS / row.name).exists())
    before = results.kept(row)
    for result in before["results"]:
        for setting in result["settings"].values():
            setting["predicted_s"] = setting["prediction_error"] = 9.0
    shutil.copytree(results.INPUTS, tmp_path / "inputs")
    right = results.kept(row)
    monkeypatch.setattr(results, "KEPT", tmp_path)
    assert results.predict(row) is False
    (tmp_path / f"{row.name}.json").write_text(json.dumps(before))
    assert results.predict(row) is True
    assert results.kept(row) == right
    monkeypatch.setattr(results, "INPUTS", tmp_path / "none")
    assert results.predict(row) is False


def of_bench(pid: str) -> list[str]:
    """The namespaces of a bench's process."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=20, check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line.startswith(f"tfs{pid}-")]


@pytest.mark.skipif(not netns_available()[0], reason=netns_available()[1])
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_measuring_that_is_interrupted_leaves_no_namespace(sent):
    command = [sys.executable, str(BENCHMARKS / "results.py"), "--measure", "servers-forward"]
    program = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell ignores it, and Python with it
    )
    try:
        deadline_s = time.monotonic() + LIMIT_S / 2
        children = pathlib.Path(f"/proc/{program.pid}/task/{program.pid}/children")
        while not (bench := children.read_text().strip()) or not of_bench(bench):
            assert time.monotonic() < deadline_s and program.poll() is None
            time.sleep(0.2)
        program.send_signal(sent)
        assert program.wait(LIMIT_S / 2) != 0
        assert of_bench(bench) == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)


def test_planners_are_compared_with_the_optimum_of_a_chain():
    arguments = (
        "--check",
        "5",
        "--cp_sat",
        "0",
        "--models",
        "mlp24",
        "--gbps",
        "10",
        "--planners",
        "buckets",
        "dear",
        "--json",
    )
    result = json.loads(run("chain_optimum", *arguments))
    assert result["checked"] == {"all schedules": 5, "all cuts": 5, "CP-SAT": 0}
    (row,) = result["gaps"]
    assert row["proven"] and row["buckets"] > -1e-3


def test_the_steps_of_lookahead_are_compared():
    arguments = ("--instances", "1", "--recvs", "5", "--adversaries", "1", "--changes", "2", "--time_limit_s", "5", "--json")
    result = json.loads(run("lookahead_ablation", *arguments))
    parts = {row["part"]: row for row in result["parts"]}
    assert (
        -1e-6
        <= parts["all"]["mean"]
        <= parts["with descent"]["mean"]
        <= parts["with passes"]["mean"]
        <= parts["step 1"]["mean"]
    )
    (row,) = result["adversary"]
    assert row["found"] >= row["first"] >= -1e-6


@pytest.mark.skipif(not netns_available()[0], reason=netns_available()[1])
@pytest.mark.parametrize("kind", ["servers", "all-reduce"])
def test_a_rate_that_changes_while_a_training_runs(kind):
    printed = run(
        "rate_change",
        *("--kinds", kind, "--rates", "100mbit,5mbit", "--model", "mlp2x200", "--batch", "8", "--steps", "6"),
    )
    rows = [line.split("|")[1:-1] for line in printed.splitlines() if line.startswith(f"| {kind} ")]
    assert [row[1].strip() for row in rows] == ["100mbit", "5mbit"]
    # 326 kB take 0.5 s at the second rate, in this training and in one that has always had it; 0.03 s at the first.
    assert min(float(rows[1][2]), float(rows[1][4])) > 0.3


def test_a_rate_is_settled_when_all_later_steps_are_near_the_median(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    settled_after = load("rate_change").settled_after
    assert settled_after([1.0] * 8, 1.0, 0.1) == 0
    assert settled_after([5.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 1.0, 0.1) == 1
    assert settled_after([5.0, 5.0, 5.0, 5.0, 1.0, 1.0, 1.0, 1.0], 1.0, 0.1) == 4
