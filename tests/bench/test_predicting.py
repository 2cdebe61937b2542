"""What the simulator predicts from the parts of a run that were measured alone."""

import dataclasses
import gzip
import json

import pytest

from tests.simulator.test_workload import SERVERS, traced
from tfsched import TfschedError
from tfsched.bench import BenchConfig, BenchError, inputs, predicting, run
from tfsched.ordering import AllReduce, Plan, exchange_dag, make_plan
from tfsched.simulator import Cluster, methods
from tfsched.tracing import StepTrace

PLANNERS = ("pace", "mg-wfbp", "us-byte", "buckets", "optimal", "prophet-plan")
NAMES = ("tio", "fifo", "p3", *PLANNERS, "tio:barrier=false", "fifo:barrier=false", "dear:barrier=false")


class Trace:
    """What is read of a trace of all-reduces: 24 layers, whose backward pass takes twice the forward pass."""

    exchanges = ("some",)

    def receivers(self):
        return ["all-reduce"]

    def dag(self, receiver, bandwidth_bps=None):
        del receiver
        gradients = [AllReduce(f"layer{i}", 4_000_000, 14e3 * (24 + 2 * (24 - i)), 14e3 * i) for i in reversed(range(24))]
        return exchange_dag(gradients, bandwidth_bps)


TRACE = Trace()


def measured(workers=2, **changes):
    link_s = 2 * (workers - 1) / workers * 96e6 * 8 / 1e9
    bounds = {"compute_s": 1.0, "closed_form_s": link_s, "tcp_s": 1.05 * link_s, "compute_p95_over_p50": 1.0}
    settings = {name: {"median_s": 1.5} for name in ("vanilla", *NAMES)}
    given = {"api": "mirrored", "model": "mlp24", "workers": workers, "bandwidth_bps": 1e9, "gradient_bytes": 96_000_000}
    given["block"] = 8
    return {**given, "bounds": bounds, "settings": settings, **changes}


def predict(*arguments, **options):
    """The step where computing takes what was measured."""
    return {name: steps_s[1] for name, steps_s in predicting.predict(*arguments, **options).items()}


@pytest.mark.parametrize("workers", [2, 3])
def test_all_reduced_steps_are_predicted_between_their_bounds(workers):
    result = measured(workers)
    predicted = predict(result, TRACE, iterations=2)
    assert set(predicted) == set(NAMES)
    tcp_s = result["bounds"]["tcp_s"]
    for step_s in predicted.values():
        assert max(1.0, tcp_s) < step_s < 1.001 * (1.0 + tcp_s)
    # A step that keeps the barrier ends with the last gradient, whichever that is.
    assert predicted["tio"] == pytest.approx(predicted["fifo"])
    assert predicted["tio:barrier=false"] < predicted["tio"]
    # As gradients become ready, what the next step needs first comes last.
    assert predicted["tio:barrier=false"] < 0.9 * predicted["fifo:barrier=false"]


def test_computing_that_is_slower_beside_communication_makes_a_step_longer():
    result = measured()
    slower = measured()
    slower["bounds"]["beside_s"] = 1.2
    before, after = (predict(one, TRACE, iterations=2) for one in (result, slower))
    assert all(0.999 * before[name] < after[name] < 1.21 * before[name] for name in NAMES)
    assert after["tio:barrier=false"] > 1.1 * before["tio:barrier=false"]


@pytest.mark.parametrize(("compute_s", "forward_s"), [(0.9, 0.364), (0.7, 0.364), (0.6, 0.2167), (1.2, 0.4333)])
def test_all_reduces_slow_the_backward_pass_that_they_are_beside(compute_s, forward_s):
    """Both passes are scaled where the backward pass cannot be: it took longer by more than half, or was faster."""
    result = measured()
    result["bounds"]["compute_s"] = compute_s
    workload, _ = predicting._all_reducing(result, TRACE)
    assert workload.compute_us == pytest.approx(compute_s * 1e6)
    gradients = {op for parameter in workload.parameters for op in parameter.made_by}
    forward_us = sum(op.time_us for op in workload.ops if op.name not in gradients)
    assert forward_us == pytest.approx(forward_s * 1e6, rel=0.001)


def test_groups_are_joined_and_split_in_the_measured_time():
    """All gradients in one group: half of the time before the exchange, half after it."""
    layers = [f"layer{i}" for i in range(24)]
    plan = json.dumps(Plan("all as one", dict.fromkeys(layers, 0.0), groups=[layers]).to_json())
    results = measured(), measured()
    results[1]["bounds"]["join_s"] = 0.5
    for name in ("mg-wfbp", "tio:barrier=false"):
        before, after = (predict(result, TRACE, {"mg-wfbp": plan}, iterations=2)[name] for result in results)
        assert after == pytest.approx(before + (0.5 if name == "mg-wfbp" else 0.0), rel=0.01), name


def test_across_the_barrier_bytes_move_as_fast_as_both_ways_at_once():
    shares = [predicting._both_ways({"communication_s": 1.0, "both_s": both_s}) for both_s in (None, 0.9, 1.25)]
    assert shares == [1.0, 1.0, 0.8]


def on_one_server(trace, scale):
    """The trace with all variables on the first server, and transfers `scale` times as large."""
    data = json.loads(json.dumps(trace.to_json()).replace(SERVERS[1], SERVERS[0]))
    for transfer in data["transfers"]:
        transfer["bytes"] *= scale
    return StepTrace.from_json(data)


def test_p3_waits_behind_each_piece_as_long_as_was_measured():
    trace = on_one_server(traced(train=True), 20_000)  # each variable is ten pieces of p3's
    names = ("p3:barrier=false", "bytescheduler+barrier-crossing", "p3")
    bounds = {"compute_s": 0.01, "communication_s": 1.0, "both_s": 1.2, "compute_p95_over_p50": 1.0}
    result = measured(workers=1, api="session", ps=1, phase="train", bounds=bounds, settings={name: {} for name in names})
    before = predict(result, trace, iterations=4)
    bounds["pieces_s"] = 1.7
    after = predict(result, trace, iterations=4)
    # Pulls need pushes, so that at most both directions' waits follow one another.
    assert 0.95 * 0.5 < after[names[0]] - before[names[0]] < 1.05 * 2 * 0.5
    assert [after[name] for name in names[1:]] == [before[name] for name in names[1:]]
    bounds["pieces_s"] = 1.1  # as fast as whole tensors
    assert predict(result, trace, iterations=4) == before


def test_p3_waits_behind_each_piece_that_it_all_reduces():
    """What the pieces took longer alone than all gradients is what a step with them takes longer; others do not wait."""
    settings = {name: {} for name in ("p3:barrier=false", "tio:barrier=false", "p3")}
    before, after, as_fast = (measured(settings=settings) for _ in range(3))
    before["bounds"] |= {"compute_s": 0.1}  # so that the step is what sending takes
    after["bounds"] |= {"compute_s": 0.1, "exchange_s": 0.8, "pieces_s": 1.3}
    as_fast["bounds"] |= {"compute_s": 0.1, "exchange_s": 0.8, "pieces_s": 0.7}
    before, after, as_fast = (predict(result, TRACE, iterations=2) for result in (before, after, as_fast))
    assert after.pop("p3:barrier=false") - before["p3:barrier=false"] == pytest.approx(0.5, rel=0.1)
    assert after == {name: before[name] for name in after}
    assert as_fast == before


def test_updates_take_the_traced_time():
    """Else what a server updates for long is pulled at once, in front of what is urgent and comes a moment later."""
    bounds = {"compute_s": 1.0, "communication_s": 1.0, "compute_p95_over_p50": 1.0}
    trace = traced(train=True)
    for step in trace.steps:
        step.ops.update({"apply0": (500, 30), "apply1": (500, 50)})
    _, cluster = predicting._with_servers({"workers": 1, "ps": 2, "phase": "train", "bounds": bounds}, trace)
    assert cluster.update_us_per_mb == pytest.approx(400_000)


def test_only_stock_tensorflows_messages_take_turns():
    cluster = Cluster(bandwidth_bps=1e9)
    stock = predicting._sending(cluster, methods()["vanilla"], stock=True, both_ways=0.9)
    assert stock == dataclasses.replace(cluster, window_bytes=predicting.WINDOW_BYTES)
    crossing = dataclasses.replace(methods()["fifo"], barrier=False)
    assert predicting._sending(cluster, crossing, stock=False, both_ways=0.9) == Cluster(bandwidth_bps=0.9e9)
    in_pieces = dataclasses.replace(crossing, partition_bytes=1_000_000)
    assert predicting._sending(cluster, in_pieces, stock=False, both_ways=1.0).updates == "piece"


def test_what_cannot_be_predicted_has_none_and_a_note_says_why():
    with pytest.raises(BenchError, match="the links have no limit"):
        predicting.predict(measured(bandwidth_bps=None), TRACE)
    result = measured()
    predicting.add_to(result)
    assert result["notes"][0].startswith("no prediction: it needs a traced step")
    assert all(row["predicted_s"] is None and row["prediction_error"] is None for row in result["settings"].values())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", "the format of .* is None; give a file that bench --inputs has written"),
        ('{"format": "other"}', "the format of .* is 'other'"),
        (f'{{"format": "{inputs.FORMAT}"}}', "has no plans as text"),
        (f'{{"format": "{inputs.FORMAT}", "plans": {{"pace": 1}}}}', "has no plans as text"),
        (f'{{"format": "{inputs.FORMAT}", "plans": {{}}}}', "The trace's format is 'NoneType'"),
        ("{", "cannot be read"),
    ],
)
def test_files_that_predictions_cannot_be_made_from(tmp_path, content, sentence):
    path = tmp_path / "mlp24-2.json.gz"
    path.write_bytes(gzip.compress(content.encode()))
    with pytest.raises((BenchError, TfschedError), match=sentence):
        inputs.load(str(path))


def test_missing_and_damaged_files_that_predictions_cannot_be_made_from(tmp_path):
    path = tmp_path / "mlp24-2.json.gz"
    with pytest.raises(BenchError, match=r"cannot be read .*give a file that bench --inputs has written"):
        inputs.load(str(path))
    for content in (b"{}", gzip.compress(b"{}")[:-4]):
        path.write_bytes(content)
        with pytest.raises(BenchError, match="cannot be read"):
            inputs.load(str(path))


def test_blocks_too_short_for_a_steady_state_are_named():
    texts = []
    for block in (6, 7):
        result = measured(block=block)
        predicting.add_to(result, TRACE)
        texts.append(result.get("notes", []))
    assert texts[0] == [
        "predictions are of the steady state, and blocks of 6 steps are measured with their ends; give --block 7 or more"
    ]
    assert texts[1] == []


def test_a_trace_that_cannot_be_used_leaves_what_was_measured():
    class Empty(Trace):
        def dag(self, receiver, bandwidth_bps=None):
            raise TfschedError("The traced steps were all-reduced by stock TensorFlow.")

    result = measured()
    predicting.add_to(result, Empty())
    assert result["notes"] == ["no prediction: The traced steps were all-reduced by stock TensorFlow."]
    assert all(row["median_s"] == 1.5 and row["predicted_s"] is None for row in result["settings"].values())


def test_what_hangs_on_little_is_named_and_its_mean_predicted(monkeypatch):
    result = measured()
    result["settings"] = {name: {"median_s": 2.0} for name in ("tio", "fifo", "p3", "vanilla")}
    given = {"tio": (1.94, 2.0, 2.06), "fifo": (1.7, 2.0, 2.0), "p3": (2.0, 2.0, 2.0)}
    monkeypatch.setattr(predicting, "predict", lambda *_: given)
    predicting.add_to(result)
    row = result["settings"]["fifo"]
    assert row["predicted_s"] == pytest.approx(1.9) and row["predicted_range_s"] == [1.7, 2.0]
    assert row["prediction_error"] == pytest.approx(-0.05)
    (line,) = predicting.note(result["settings"])
    assert ": fifo 1.700 to 2.000 s; " in line
    assert result["settings"]["vanilla"]["predicted_range_s"] is None
    del result["settings"]["fifo"]
    assert predicting.note(result["settings"]) == []
    assert predicting.note({"tio": {"median_s": 1.0}}) == []


def test_computing_is_predicted_to_take_less_and_more():
    result = measured()
    result["settings"] = {name: {"median_s": 1.0} for name in ("tio:barrier=false", "p3:barrier=false")}
    result["bounds"]["compute_s"] = 3.0  # the links carry all of it meanwhile
    for least_s, step_s, most_s in predicting.predict(result, TRACE, iterations=2).values():
        assert step_s - least_s == pytest.approx(0.09, rel=0.1) and most_s - step_s == pytest.approx(0.09, rel=0.1)


def test_a_setting_with_a_plan_is_predicted_by_that_plan():
    result = measured()
    names = ["optimal:barrier=false", "buckets:barrier=false"]
    result["settings"] = {name: {"median_s": 1.5} for name in names}
    dag = TRACE.dag("all-reduce", 1e9)
    best, worst = (make_plan(dag, name).to_json() for name in ("optimal", "layer"))
    for transfer in worst["transfers"]:
        transfer["priority"] = -transfer["priority"]
    plans = {names[0]: json.dumps(best), names[1]: json.dumps(worst)}
    predicted = predict(result, TRACE, plans, iterations=2)
    assert predicted[names[0]] < 0.95 * predicted[names[1]]


def test_steps_with_two_servers_and_two_workers_are_predicted(capsys):
    settings = ["vanilla", "bytescheduler", "bytescheduler:partition_bytes=65536:barrier=false"]
    given = {"models": ["mlp4x256"], "ps": 2, "workers": 2, "phase": "train", "batch": 4, "link": "emulated"}
    result = run(BenchConfig(**given, bandwidth="50mbit", settings=settings, steps=2, warmup=1, predict=True))
    assert result["bounds"]["beside_s"] > 0
    assert result["bounds"]["both_s"] > 0
    link_s = 4 * 256 * 256 * 4 * 8 / 50e6
    for name in settings:
        row = result["settings"][name]
        assert row["predicted_s"] > 0.9 * link_s
        assert row["prediction_error"] == pytest.approx(row["predicted_s"] / row["median_s"] - 1)
    assert "predicted" in " ".join(capsys.readouterr().out.split())


def test_a_run_without_a_step_that_keeps_the_barrier_says_that_it_cannot_predict(capsys):
    given = {"models": ["toy"], "phase": "train", "batch": 4, "link": "none", "bandwidth": "unlimited"}
    result = run(BenchConfig(**given, settings=["bytescheduler+barrier-crossing"], steps=2, warmup=1, predict=True))
    assert result["settings"]["bytescheduler+barrier-crossing"]["predicted_s"] is None
    assert "no prediction: it needs a traced step" in " ".join(capsys.readouterr().out.split())
