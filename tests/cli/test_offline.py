"""The offline commands: every input, what they print and write, and the mistakes."""

from __future__ import annotations

import csv
import dataclasses
import html
import itertools
import json
import re

import pytest

from tests.cli.conftest import ROOT, call
from tfsched import ordering
from tfsched.ordering import Plan
from tfsched.simulator import Cluster

INPUTS = ["dag.json", "layers.csv", "trace.json.gz", "metadata.pb"]
SMALL = ["--iterations", 3, "--warmup", 1]
PNG = b"\x89PNG"


def valid_timeline(path):
    events = json.loads(path.read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert spans
    assert all(event["ts"] >= 0 and event["dur"] >= 0 for event in spans)
    return spans


@pytest.mark.parametrize("name", INPUTS)
def test_order_reads_every_input_and_its_plan_loads(recorded, tmp_path, name):
    plan, picture, timeline = tmp_path / "plan.json", tmp_path / "step.png", tmp_path / "step.json"
    answer = call(
        "order", recorded / name, "--algorithm", "tao", "--plan", plan, "--plot", picture, "--timeline", timeline, "--json"
    )
    result = answer.json()
    assert result["lower_bound_us"] <= result["makespan_us"] * (1 + 1e-9)
    loaded = Plan.load(str(plan))
    assert set(result["order"]) == set(loaded.priorities)
    assert picture.read_bytes().startswith(PNG)
    assert max(event["ts"] + event["dur"] for event in valid_timeline(timeline)) == pytest.approx(result["makespan_us"])


@pytest.mark.parametrize("name", INPUTS)
def test_simulate_reads_every_input(recorded, name):
    result = call("simulate", recorded / name, "--method", "vanilla,tao", *SMALL, "--json").json()
    assert list(result["methods"]) == ["vanilla", "tao"]
    for method in result["methods"].values():
        assert len(method["iteration_us"]) == 3
        assert method["lower_us"] <= method["median_us"] * (1 + 1e-6)


@pytest.mark.parametrize("name", INPUTS)
def test_explain_reads_every_input(recorded, name):
    result = call("explain", recorded / name, "--json").json()
    assert len(result["recvs"]) >= 3
    for one, following in itertools.pairwise(result["critical_path"]):
        assert following["start_us"] == pytest.approx(one["end_us"])
    assert sum(result["on_the_path_us"].values()) == pytest.approx(result["makespan_us"])


def test_explain_tells_what_balanced_servers_would_bring(recorded, tmp_path):
    def explained(sizes, compute_us):
        links = {name: {"kind": "link", "bandwidth_bps": 8e6} for name, _ in sizes}
        recvs = [{"name": f"r{i}", "resource": name, "bytes": size, "inputs": []} for i, (name, size) in enumerate(sizes)]
        last = {"name": "c", "resource": "w/compute", "time_us": compute_us, "inputs": [op["name"] for op in recvs]}
        dag = {"format": "tfsched-dag/1", "resources": {"w/compute": {"kind": "compute"}, **links}, "ops": [*recvs, last]}
        (tmp_path / "dag.json").write_text(json.dumps(dag))
        answer = call("explain", tmp_path / "dag.json", "--algorithm", "tio")
        assert answer.code == 0
        return call("explain", tmp_path / "dag.json", "--algorithm", "tio", "--json").json(), answer.out

    # A byte takes 1 us. One server holds three times the other's bytes.
    uneven, shown = explained([("ps0>w", 3000), ("ps1>w", 1000)], 500)
    assert {link["name"]: (link["bytes"], link["time_us"], link["balanced_us"]) for link in uneven["links"]} == {
        "ps0>w": (3000, 3000, 2000),
        "ps1>w": (1000, 1000, 2000),
    }
    assert (uneven["busiest_us"], uneven["balanced_busiest_us"]) == (3000, 2000)
    assert "2,000.0 µs" in shown and "tfsched.placement" in shown

    # Computing takes as long as the fuller link: balance brings nothing.
    computing, shown = explained([("ps0>w", 3000), ("ps1>w", 1000)], 3000)
    assert (computing["busiest_us"], computing["balanced_busiest_us"]) == (3000, 3000)
    assert "less than 2 %" in shown

    # What goes the other way, or to another worker, is not mixed in; a single link says nothing of balance.
    ways, shown = explained([("ps0>w", 3000), ("w>ps0", 1000)], 500)
    assert "tfsched.placement" not in shown
    assert all(link["time_us"] == link["balanced_us"] for link in ways["links"])
    assert "tfsched.placement" not in call("explain", recorded / "dag.json", "--algorithm", "tio").out


def test_other_links_make_other_steps(recorded):
    slow = call("order", recorded / "dag.json", "--bandwidth", "1gbit", "--startup_us", 0, "--json").json()
    fast = call("order", recorded / "dag.json", "--bandwidth", "2gbit", "--startup_us", 0, "--json").json()
    assert slow["upper_bound_us"] - fast["upper_bound_us"] == pytest.approx(2_500_000 * 8 / 2000)
    started = call("order", recorded / "dag.json", "--bandwidth", "1gbit", "--startup_us", 100, "--json").json()
    assert started["upper_bound_us"] - slow["upper_bound_us"] == pytest.approx(3 * 100)


def test_a_models_step_follows_batch_rate_and_phase():
    forward = call("order", "--model", "resnet18", "--phase", "forward", "--batch", 8, "--json").json()
    train = call("order", "--model", "resnet18", "--batch", 8, "--json").json()
    slower = call("order", "--model", "resnet18", "--batch", 16, "--flops", "4e12", "--json").json()
    assert (forward["ops"], train["ops"], train["recvs"]) == (2 * 62, 3 * 62, 62)
    transfers = 46_758_048 * 8 / 10e9 * 1e6
    assert slower["upper_bound_us"] - transfers == pytest.approx(4 * (train["upper_bound_us"] - transfers))
    assert train["upper_bound_us"] - transfers == pytest.approx(3 * (forward["upper_bound_us"] - transfers))


def test_the_same_seed_gives_the_same_simulation_and_another_seed_another(recorded):
    arguments = ["simulate", recorded / "dag.json", "--cluster", recorded / "cluster.yaml", "--method", "vanilla", "--json"]
    first, again, other = (call(*arguments, *SMALL, "--seed", seed).out for seed in (1, 1, 2))
    assert first == again
    assert json.loads(first)["methods"] != json.loads(other)["methods"]


def test_flags_win_over_the_cluster_file(recorded):
    arguments = [
        "simulate",
        recorded / "dag.json",
        "--cluster",
        recorded / "cluster.yaml",
        "--method",
        "tao",
        "--json",
        *SMALL,
    ]
    assert "2 worker(s), 2 server(s), ps, 1 Gbit/s, start-up 20" in call(*arguments).json()["description"]
    changed = call(
        *arguments, "--workers", 3, "--servers", "workers", "--bandwidth", "2gbit",
        "--set", "worker_bandwidth_bps=[1gbit,1gbit,500mbit],straggler=none",
    ).json()  # fmt: skip
    assert "3 worker(s) of 0.5 to 1 Gbit/s, 3 server(s), ps, 2 Gbit/s" in changed["description"]
    assert "straggler: none" in changed["cluster"]


def test_balanced_servers_halve_what_bounds_vgg16():
    arguments = ["simulate", "--model", "vgg16", "--workers", 2, "--servers", 2, "--bandwidth", "250mbit", "--json", *SMALL]
    bounds_us = {}
    for placement in ("round-robin", "balanced"):
        ((_, found),) = call(*arguments, "--method", "fifo", "--placement", placement).json()["methods"].items()
        bounds_us[placement] = found["lower_us"]
    # 553 MB to each of two workers, half of it from each server.
    assert bounds_us["balanced"] == pytest.approx(553_430_176 * 8 / 250e6 * 1e6, rel=0.01)
    assert bounds_us["round-robin"] > 1.9 * bounds_us["balanced"]


def test_a_method_takes_options(recorded):
    text = "tao:credit_bytes=0:partition_bytes=65536"
    result = call("simulate", recorded / "dag.json", "--method", f"tao,{text}", *SMALL, "--json").json()
    assert result["methods"][text]["messages"] > result["methods"]["tao"]["messages"]


def test_all_methods_are_every_ordering_and_preset(recorded):
    result = call("simulate", recorded / "layers.csv", "--method", "all", *SMALL, "--json").json()
    assert set(ordering.names()) - {"exact"} | {"vanilla", "bytescheduler+barrier-crossing"} <= set(result["methods"])


def test_simulate_draws_and_writes_a_timeline_for_each_method(recorded, tmp_path):
    picture, timeline, out = tmp_path / "gantt.png", tmp_path / "t.json", tmp_path / "out.json"
    answer = call(
        "simulate", recorded / "layers.csv", "--method", "vanilla,bytescheduler+barrier-crossing", *SMALL,
        "--plot", picture, "--timeline", timeline, "--out", out,
    )  # fmt: skip
    assert answer.code == 0
    assert "bytescheduler+barrier-crossing" in answer.out
    assert picture.read_bytes().startswith(PNG)
    assert json.loads(out.read_text())["format"] == "tfsched-simulation/1"
    for name in ("vanilla", "bytescheduler+barrier-crossing"):
        assert any("dense" in event["name"] for event in valid_timeline(tmp_path / f"t.{name}.json"))


def test_sweep_has_a_row_for_every_point_and_more_bandwidth_is_never_slower(recorded, tmp_path):
    table, picture = tmp_path / "sweep.csv", tmp_path / "sweep.png"
    result = call(
        "sweep", recorded / "layers.csv", "--bandwidth", "1gbit,2gbit,4gbit", "--workers", "1,2", "--method", "fifo,tao",
        *SMALL,
        "--csv", table, "--plot", picture, "--json",
    ).json()  # fmt: skip
    rows = result["rows"]
    points = {(row["workers"], row["bandwidth_bps"], row["method"]) for row in rows}
    assert points == set(itertools.product((1, 2), (1e9, 2e9, 4e9), ("fifo", "tao")))
    assert len(list(csv.DictReader(table.open()))) == len(rows) == 12
    assert picture.read_bytes().startswith(PNG)
    times = {(row["workers"], row["method"], row["bandwidth_bps"]): row["median_us"] for row in rows}
    for workers, method in itertools.product((1, 2), ("fifo", "tao")):
        assert times[workers, method, 1e9] >= times[workers, method, 2e9] >= times[workers, method, 4e9]


def test_trainings_beside_each_other_share_links_as_they_are_told(recorded, tmp_path):
    """The first is as alone where it goes first; half of the link is the last one's at most."""
    line = ("simulate", recorded / "layers.csv", "--beside", "resnet18", "--bandwidth", "1gbit", "--method", "layer", *SMALL)
    out = tmp_path / "jobs.json"
    row = call(*line, "--priorities", "0,1", "--rates", "0,500mbit", "--json", "--out", out).json()["methods"]["layer"]
    first, second = row["alone_us"]
    assert row["speed"][first] == pytest.approx(1, abs=0.01)
    assert 0.2 < row["speed"][second] < 0.7
    assert json.loads(out.read_text())["methods"]["layer"] == row
    shown = call(*line, "--priorities", "intensity").out
    assert "layers.csv and resnet18 share servers" in shown and "busiest shared link" in shown


def test_the_simulated_forward_pass_is_the_predicted_one(recorded):
    """One worker, one transfer at a time: what order predicts and what the cluster does are the same step."""
    predicted = call(
        "order", recorded / "layers.csv", "--phase", "forward", "--bandwidth", "1gbit", "--algorithm", "layer", "--json"
    )
    simulated = call(
        "simulate",
        recorded / "layers.csv",
        "--phase",
        "forward",
        "--bandwidth",
        "1gbit",
        "--method",
        "layer",
        *SMALL,
        "--json",
    )
    assert simulated.json()["methods"]["layer"]["median_us"] == pytest.approx(predicted.json()["makespan_us"])


def test_a_report_holds_everything_and_loads_nothing(recorded):
    bench = {
        "model": "mlp<24>", "phase": "forward", "ps": 1, "workers": 1, "batch": 8, "link": "netns", "bandwidth_bps": 1e9,
        "bounds": {}, "settings": {"vanilla": {"steps_s": [0.5, 0.6]}, "tio": {"steps_s": [0.3, 0.4], "efficiency": 0.9}},
    }  # fmt: skip
    directory = recorded / "report"
    directory.mkdir()
    for name in ("dag.json", "layers.csv", "trace.json.gz"):
        (directory / name).write_bytes((recorded / name).read_bytes())
    (directory / "bench.json").write_text(json.dumps(bench))
    (directory / "broken.json").write_text("{")
    sweep = call(
        "sweep",
        recorded / "layers.csv",
        "--bandwidth",
        "1gbit",
        "--workers",
        "1,2",
        "--method",
        "fifo,tao",
        *SMALL,
        "--json",
    )
    (directory / "sweep.json").write_text(sweep.out)
    answer = call("report", directory, "--method", "vanilla,tao", *SMALL, "--workers", 2, "--json")
    summary = answer.json()
    assert list(summary["unused"]) == ["broken.json"]
    page = (directory / "report.html").read_text()
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")
    assert page.count("data:image/png;base64,") == 1 + 2 * 3 + 1  # a bench, Gantt and CDF of three sources, a sweep
    for text in ("mlp<24>", "dag.json", "layers.csv", "trace.json.gz", "broken.json", "Recommended", "conv1", "proven"):
        assert html.escape(text) in page
    assert "mlp<24>" not in page
    plan = Plan.load(str(directory / "recommended-plan.json"))
    assert plan.algorithm == summary["recommended"]["ordering"]


@pytest.mark.parametrize(("method", "policy"), [("pace", "bytescheduler"), ("mg-wfbp", "bytescheduler"), ("tao", None)])
def test_a_report_recommends_all_that_its_planner_needs(tmp_path, method, policy):
    answer = call("report", tmp_path, "--model", "seq32", "--method", method, *SMALL, "--json")
    recommended = answer.json()["recommended"]
    assert recommended["method"] == method and recommended.get("policy") == policy
    page = (tmp_path / "report.html").read_text()
    assert (html.escape(f"policy={policy!r}") in page) is (policy is not None)
    assert ("credit_bytes=" in page) is (policy is not None)


def test_a_report_can_be_made_of_a_model_alone(tmp_path):
    answer = call("report", tmp_path, "--model", "seq32", "--method", "vanilla,tio", *SMALL, "--json")
    assert answer.json()["recommended"]["method"] in ("vanilla", "tio")
    assert "Other bandwidths" in (tmp_path / "report.html").read_text()


def test_quiet_prints_nothing(recorded, tmp_path):
    for command in ("order", "explain", "simulate", "sweep"):
        assert call(command, recorded / "dag.json", "--quiet")[:2] == (0, "")
    (tmp_path / "dag.json").write_bytes((recorded / "dag.json").read_bytes())
    assert call("report", tmp_path, "--quiet", *SMALL)[:2] == (0, "")


def test_orderings_are_compared_with_the_proven_optimum(recorded):
    answer = call("order", recorded / "dag.json", "--compare", "all", "--json").json()
    assert answer["optimum"]["proven"]
    rows = {row["ordering"]: row for row in answer["orderings"]}
    assert {"fifo", "layer", "lookahead", "mg-wfbp", "pace", "tao", "tio"} <= set(rows)
    # In the order of use the transfers take 8005, 8005 and 4005 us, and only the last op's 2000 us are behind them.
    assert answer["optimum"]["bound_us"] == pytest.approx(8005 + 8005 + 4005 + 2000)
    assert rows["tao"]["over_bound"] == pytest.approx(0)
    assert all(row["over_bound"] >= -1e-9 for row in rows.values() if not row["cuts"])
    shown = call("order", recorded / "dag.json", "--compare", "tao,fifo").out
    assert "proven" in shown and shown.index("tao") < shown.index("fifo")


MISTAKES = [
    ("order {d}/dag.json --compare tao,nope", "nope"),
    ("order {d}/dag.json --model resnet50", "one of the two"),
    ("simulate", "one file"),
    ("simulate {d}/dag.json {d}/layers.csv", "one file"),
    ("simulate --model resnet51", "resnet51"),
    ("simulate --model resnet18 --flops 0", "flops"),
    ("simulate --model resnet18 --bandwidth fast", "fast"),
    ("simulate --model resnet18 --bandwidth unlimited", "no limit"),
    ("simulate --model resnet18 --method nope", "nope"),
    ("simulate --model resnet18 --method tao:credit=3", "credit=3"),
    ("simulate --model resnet18 --method tao:credit_bytes=x", "credit_bytes"),
    ("simulate --model resnet18 --set nope=3", "nope"),
    ("simulate --model resnet18 --set startup_us=fast", "startup_us"),
    ("simulate --model resnet18 --workers 3 --set worker_bandwidth_bps=[1gbit,2gbit]", "has 2 numbers for 3 workers"),
    ("simulate --model resnet18 --servers many", "many"),
    ("simulate --model resnet18 --cluster {d}/no.yaml", "no.yaml"),
    ("simulate --model resnet18 --cluster {d}/metadata.pb", "metadata.pb"),
    ("simulate {d}/bare.pb", "partition graphs"),
    ("simulate {d}/cluster.yaml", "neither JSON, CSV"),
    ("simulate {d}/trace.json.gz --receiver /job:nobody", "/job:nobody"),
    ("simulate --model resnet18 --beside resnet51", "resnet51"),
    ("simulate --model resnet18 --beside resnet18 --priorities 1", "--priorities has 1 values for 2 trainings"),
    ("simulate --model resnet18 --beside resnet18 --starts_us 0,soon", "--starts_us is '0,soon'; give numbers"),
    ("simulate --model resnet18 --beside resnet18 --timeline t.json", "--beside draws no timeline"),
    ("sweep --model resnet18 --workers 1,x", "'x'"),
    ("sweep --model resnet18 --workers 0", "'0'"),
    ("sweep --model resnet18 --bandwidth 1gbit,,2gbit", "empty"),
    ("explain {d}/dag.json --algorithm nope", "nope"),
    ("report", "one directory"),
    ("report {d}/dag.json", "not a directory"),
    ("report {d}/empty", "nothing to report"),
]


@pytest.mark.parametrize(("line", "words"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_sentence(recorded, line, words):
    (recorded / "empty").mkdir(exist_ok=True)
    answer = call(*line.format(d=recorded).split())
    assert answer.code == 2
    assert words in answer.err
    assert len(answer.err.strip().splitlines()) == 1
    assert not answer.out


@pytest.mark.parametrize("command", ["order", "explain", "simulate", "sweep", "report"])
def test_every_flag_has_a_default_and_an_environment_variable(command, monkeypatch):
    shown = call(command, "--help").out
    flags = re.findall(r"^  --(?:\[no\])?(\w+)", shown, re.MULTILINE)
    assert flags and shown.count(f"[TFSCHED_{command.upper()}_") == len(flags)
    monkeypatch.setenv(f"TFSCHED_{command.upper()}_SEED", "seven")
    answer = call(command)
    assert answer.code == 2
    assert f"TFSCHED_{command.upper()}_SEED" in answer.err


def test_the_cluster_file_is_documented_key_by_key():
    text = (ROOT / "docs" / "cluster-format.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == {field.name for field in dataclasses.fields(Cluster)}
