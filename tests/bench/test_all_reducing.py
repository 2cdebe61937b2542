"""The bench where workers all-reduce: real workers, tiny models."""

import io
import json

import pytest
import tensorflow as tf
from rich.console import Console

from tfsched.bench import (
    BenchConfig,
    BenchError,
    functions,
    inputs,
    predicting,
    reducing,
    reducing_table,
    replicas_runner,
    report,
    run,
)
from tfsched.bench.links import REAL
from tfsched.bench.replicas_runner import merged
from tfsched.bench.runner import ALL_REDUCE, COMPUTE, TCP, Measurement
from tfsched.bench.testbed import netns_available

TOY_BYTES = 3 * 256 * 256 * 4


def toy(**changes) -> BenchConfig:
    given = {"models": ["toy"], "api": "mirrored", "link": "none", "batch": 4, "steps": 4, "warmup": 1, "timeout_s": 90.0}
    return BenchConfig(**{**given, **changes})


def test_two_workers_train_over_a_slow_link_with_and_without_tfsched(tmp_path, capsys):
    paths = {"json": str(tmp_path / "a.json"), "plot": str(tmp_path / "a.png")}
    settings = ["vanilla", "tio", "p3:barrier=false", "tio:ordering=none", "pace:barrier=false"]
    result = run(toy(link="emulated", bandwidth="50mbit", batch="auto", settings=settings, steps=2, block=2, **paths))
    assert json.loads((tmp_path / "a.json").read_text()) == result
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert (result["api"], result["phase"], result["ps"], result["workers"]) == ("mirrored", "train", 0, 2)
    assert result["gradient_bytes"] == TOY_BYTES
    bounds = result["bounds"]
    least_s = TOY_BYTES * 8 / 50e6
    assert bounds["communication_s"] == bounds["closed_form_s"] == pytest.approx(least_s)
    assert bounds["lower_s"] == max(bounds["compute_s"], bounds["communication_s"])
    assert bounds["all_reduce_s"] > 0.8 * least_s
    assert list(result["settings"]) == settings
    for row in result["settings"].values():
        assert len(row["steps_s"]) == result["rounds"] == 1
        assert 0.8 * least_s < row["median_s"] < 60
        assert 0 <= row["straggler"] <= 1
    # Each layer by itself where tfsched was asked to, and nowhere else.
    assert result["exchanged"].pop("pace:barrier=false") >= 1  # by a plan, which may join them
    assert result["exchanged"] == {"vanilla": 0, "tio": 3, "p3:barrier=false": 3, "tio:ordering=none": 0}
    (note,) = [note for note in result["notes"] if "no transfer was ordered" in note]
    assert "tio:ordering=none" in note
    printed = " ".join(capsys.readouterr().out.split())
    for part in (
        "2 workers, 50 Mbit/s",
        "api mirrored with loop custom",
        "link, 2 x 1/2",
        "2 (W - 1) / W of 0.8 MB",
        "stock all-reduce",
    ):
        assert part in printed


def test_stock_workers_and_tfscheds_take_turns_in_all_reducing_alone():
    result = run(toy(api="parallel", phase="allreduce", settings=["vanilla", "bytescheduler"], steps=3, quiet=True))
    assert result["batch"] is None and result["block"] == 1
    assert result["exchanged"] == {"vanilla": 0, "bytescheduler": 3}
    assert all(row["throughput"] is None and len(row["steps_s"]) == 3 for row in result["settings"].values())
    bounds = result["bounds"]
    assert bounds["closed_form_s"] is None
    assert bounds["communication_s"] == bounds["all_reduce_s"] > 0


def test_predictions_stand_beside_what_was_measured(capsys, tmp_path):
    settings = ["vanilla", "tio", "p3:barrier=false", "optimal:barrier=false"]
    given = {"models": ["mlp4x256"], "link": "emulated", "bandwidth": "50mbit", "settings": settings, "predict": True}
    result = run(toy(**given, steps=2, block=2, inputs=str(tmp_path / "inputs")))
    assert min(result["bounds"][name] for name in ("beside_s", "join_s", "exchange_s", "pieces_s")) > 0
    rows = result["settings"]
    assert rows["vanilla"]["predicted_s"] is None and rows["vanilla"]["prediction_error"] is None
    for name in settings[1:]:
        row = rows[name]
        assert row["predicted_s"] > 4 * 256 * 256 * 4 * 8 / 50e6
        assert row["prediction_error"] == pytest.approx(row["predicted_s"] / row["median_s"] - 1)
    printed = " ".join(capsys.readouterr().out.split())
    assert "predicted" in printed and "computing beside all-reduces" in printed
    for part in ("joining and splitting gradients", "tfsched's all-reduce", "the same in p3's pieces"):
        assert part in printed
    trace, plans = inputs.load(str(tmp_path / "inputs" / "mlp4x256-2.json.gz"))
    assert list(plans) == settings[3:]
    again = predicting.predict(result, trace, plans)
    assert {name: [min(steps_s), max(steps_s)] for name, steps_s in again.items()} == {
        name: rows[name]["predicted_range_s"] for name in settings[1:]
    }


class Doubling:
    """A worker whose only peer has the same gradients."""

    def run(self, replica, batch):
        return replica(batch)

    def sums(self, gradients):
        return [2 * gradient for gradient in gradients]


@pytest.mark.parametrize(
    ("make", "loss"),
    [(functions.make_joining_step, 7.0), (functions.make_exchanging_step, 14.0)],
    ids=["joined", "exchanged"],
)
def test_bounds_take_variables_of_any_type_and_size_and_leave_them_as_they_are(make, loss):
    shapes = [((3, 2), tf.float32), ((), tf.float32), ((0, 4), tf.float32), ((5,), tf.float64)]
    values = [tf.Variable(tf.fill(shape, tf.cast(number + 1, dtype))) for number, (shape, dtype) in enumerate(shapes)]
    before = [value.numpy().tolist() for value in values]
    assert float(tf.function(make(values, Doubling()))(1)["loss"]) == loss  # the last element of each that has one
    assert [value.numpy().tolist() for value in values] == before


@pytest.mark.skipif(not netns_available()[0], reason=netns_available()[1])
def test_tcp_takes_the_same_bytes_over_limited_links():
    given = {"link": "netns", "bandwidth": "20mbit", "phase": "allreduce", "settings": ["tio"], "quiet": True}
    result = run(toy(**given, workers=3, steps=2))
    bounds = result["bounds"]
    assert bounds["closed_form_s"] == pytest.approx(4 / 3 * TOY_BYTES * 8 / 20e6)
    # The bucket that limits a link is full when a step begins: 256 kB of this MB leave at once.
    assert bounds["tcp_s"] > 0.7 * bounds["closed_form_s"]
    assert bounds["communication_s"] == bounds["closed_form_s"]


def test_the_links_share_of_an_all_reduce():
    assert reducing.least_s(100_000_000, 2, 1e9) == pytest.approx(0.8)
    assert reducing.least_s(100_000_000, 4, 1e9) == pytest.approx(1.2)
    assert reducing.least_s(100_000_000, 4, None) is None


FIRST = {
    "starts_s": [10.0, 11.5],
    "finishes_s": [10.6, 12.0],
    "ends_s": [11.4, 12.9],
    "drained_s": 13.1,
    "exchanged": 6,
    "unscheduled": False,
}


def test_a_step_lasts_from_its_first_worker_to_its_last():
    other = {
        "starts_s": [10.1, 11.6],
        "finishes_s": [10.8, 12.5],
        "ends_s": [11.5, 12.8],
        "drained_s": 13.3,
        "exchanged": 4,
        "unscheduled": True,
    }
    answer = merged([FIRST, other])
    assert answer["steps_s"] == pytest.approx([1.5, 1.4])
    assert answer["ends_s"] == pytest.approx([1.5, 2.9])
    assert answer["block_s"] == pytest.approx(3.3)
    assert [time_s for step in answer["finishes_s"] for time_s in step] == pytest.approx([0.6, 0.8, 0.5, 1.0])
    assert answer["exchanged"] == 2 and answer["unscheduled"]


def test_workers_whose_clocks_differ_count_from_their_own_first_steps():
    behind = {name: [time_s - 9000 for time_s in FIRST[name]] for name in ("starts_s", "finishes_s", "ends_s")}
    behind["ends_s"][1] += 0.5
    behind["drained_s"] = FIRST["drained_s"] - 9000 + 0.4
    answer = merged([FIRST, {**FIRST, **behind}], one_clock=False)
    assert answer["steps_s"] == pytest.approx([1.4, 1.9])
    assert answer["block_s"] == pytest.approx(3.5)
    assert answer["finishes_s"][1] == pytest.approx([0.5, 0.5])


def test_updates_behind_the_last_step_are_part_of_its_block_and_not_of_a_step(monkeypatch):
    answers = []
    monkeypatch.setattr(replicas_runner, "merged", lambda *given: answers.append(merged(*given)) or answers[-1])
    settings = ["tio:barrier=false"]
    result = run(toy(link="emulated", bandwidth="50mbit", settings=settings, steps=8, block=8, warmup=1, quiet=True))
    (block,) = [answer for answer in answers if len(answer["ends_s"]) == 8 and answer["exchanged"]]
    # Computing takes next to nothing here, so that the last step returns long before its gradients have crossed the link.
    on_the_link_s = TOY_BYTES * 8 / 50e6
    assert block["block_s"] - block["ends_s"][-1] > on_the_link_s / 50
    (row,) = result["settings"].values()
    assert row["median_s"] == pytest.approx((block["ends_s"][7] - block["ends_s"][2]) / 5)
    assert row["with_ends_s"] == pytest.approx(block["block_s"] / 8)


def test_the_table_names_its_bounds_and_what_was_exchanged():
    times_s = {"vanilla": [2.0, 2.2], "tio": [1.2, 1.2]}
    bounds_s = {COMPUTE: [0.7, 0.7], ALL_REDUCE: [1.2, 1.2], TCP: [1.1, 1.1]}
    measured = Measurement(
        times_s,
        {name: [[0.7, 0.7]] for name in times_s},
        bounds_s,
        {name: [0.0, 0.0] for name in times_s},
        {**times_s, **bounds_s},
    )
    facts = {
        **{
            "model": "mlp24",
            "api": "mirrored",
            "loop": "custom",
            "phase": "train",
            "ps": 0,
            "workers": 3,
            "bandwidth_bps": 1e9,
            "link": "netns",
        },
        **{
            "batch": 100,
            "ps_bytes": {},
            "gradient_bytes": 96_000_000,
            "exchanged": {"vanilla": 0.0, "tio": 24.0},
            "notes": [],
        },
        "threads": {"worker_intra_op": 1, "worker_inter_op": 0, "cores": 2, "apart": False},
        "tensorflow": "2.21.0",
    }
    result = report.build_result(measured, facts)
    assert result["imbalance"] is None
    assert result["bounds"]["lower_s"] == pytest.approx(2 * 2 / 3 * 0.768)
    assert result["bounds"]["upper_s"] == pytest.approx(1.9)  # as stock: first computing, then all-reducing
    assert result["settings"]["tio"]["bound_ratio"] == pytest.approx(1.2 / 1.024)
    table = reducing_table.table_of([result, {**result, "workers": 4, "batch": 50}])
    columns = {str(column.header): list(column.cells) for column in table.columns}
    assert columns["W"] == ["3", *[""] * 7, "4", *[""] * 7]
    assert columns["setting"][:4] == ["batch 100", "computing alone", "link, 2 x 2/3", "the same bytes over TCP"]
    assert columns["setting"][4:8] == ["stock all-reduce", "max of both", "vanilla", "tio"]
    assert columns["exchanged"][6:8] == ["0", "24"]
    assert columns["x vanilla"][6:8] == ["1.00", "1.75"]
    # Shares of the larger bound, and settings by it.
    assert columns["/ lower"][1:8] == ["0.684", "1.000", "1.074", "1.172", "1.000", "2.051", "1.172"]
    console = Console(width=110, record=True, file=io.StringIO())
    report.print_results([result], console)
    text = " ".join(console.export_text().split())
    assert "3 workers, 1 Gbit/s, link netns" in text and "batch 100" in text
    console = Console(width=110, record=True, file=io.StringIO())
    unknown = report.build_result(measured, {**facts, "link": REAL, "bandwidth_bps": None})
    assert unknown["bounds"]["lower_s"] == pytest.approx(1.2)  # what an all-reduce took
    report.print_results([unknown], console)
    assert "3 workers, links of unknown rate" in " ".join(console.export_text().split())


def test_several_numbers_of_workers_and_keras_fit_give_one_table(tmp_path, capsys):
    path = str(tmp_path / "a.json")
    settings = ["vanilla", "tio:barrier=false"]
    config = toy(api="parallel", loop="fit", settings=settings, steps=2, block=2, json=path)
    results = run(config, workers=[2, 3])
    assert json.loads((tmp_path / "a.json").read_text()) == results
    assert [(one["workers"], one["api"], one["loop"]) for one in results] == [(2, "parallel", "fit"), (3, "parallel", "fit")]
    for result in results:
        assert result["gradient_bytes"] == TOY_BYTES
        assert result["exchanged"] == {"vanilla": 0, "tio:barrier=false": 3}
        assert all(row["straggler"] is None and row["throughput"] > 0 for row in result["settings"].values())
        assert not [note for note in result["notes"] if "no transfer was ordered" in note]
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.count("toy train, 2 and 3 workers") == 1 and "api parallel with loop fit" in printed


def test_keras_fit_under_the_strategy():
    result = run(toy(loop="fit", settings=["vanilla", "tio"], steps=2, block=1, quiet=True))
    assert (result["api"], result["loop"], result["gradient_bytes"]) == ("mirrored", "fit", TOY_BYTES)
    assert result["exchanged"] == {"vanilla": 0, "tio": 3}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ps": 2}, "--ps is 2 and --api mirrored has no parameter servers: leave --ps out"),
        ({"api": "parallel", "workers": 1}, "give 2 to 64 with --api parallel"),
        ({"loop": "fit", "phase": "allreduce"}, "--loop fit trains and --phase is allreduce"),
        ({"loop": "fit", "models": ["par32"]}, "model 'par32' is not made of Keras layers"),
        ({"loop": "train"}, "loop 'train' is unknown: choose custom or fit"),
        ({"api": "session", "loop": "fit"}, "--loop fit is for workers that all-reduce: add --api mirrored or parallel"),
        ({"workers": 1}, "--workers is 1, too few or too many to all-reduce: give 2 to 64"),
        ({"phase": "forward"}, "phase 'forward' all-reduces nothing: give train or allreduce"),
        ({"phase": "backward"}, "phase 'backward' all-reduces nothing"),
        ({"beside": True, "phase": "allreduce"}, "--beside computes beside tfsched's all-reduces: give --phase train"),
        ({"predict": True, "settings": ["vanilla"]}, "--predict computes beside tfsched's all-reduces: give --phase train"),
        ({"trace": "a.json"}, "--trace traces the steps of sessions"),
        ({"inputs": "a"}, "--inputs a is for what predictions are made from: give --predict, too"),
        ({"predict": True, "inputs": __file__}, "is a file: give a directory"),
        ({"predict": True, "inputs": "/nowhere/a"}, "'/nowhere/a' cannot be written"),
        ({"claims": True}, "--claims traces the steps of sessions"),
        ({"api": "session", "phase": "allreduce"}, "phase 'allreduce' needs --api mirrored or parallel"),
    ],
)
def test_mistakes_are_told_before_anything_starts(changes, sentence):
    with pytest.raises(BenchError, match=sentence):
        run(toy(**changes))


def test_what_is_not_given_fits_the_api():
    config = toy()
    assert (config.ps, config.workers, config.phase) == (0, 2, "train")
    assert config.settings == ["vanilla", "tio", "bytescheduler", "p3"]
    session = BenchConfig(models=["toy"])
    assert (session.ps, session.workers, session.phase, session.settings) == (1, 1, "forward", ["vanilla", "tio", "tao"])
