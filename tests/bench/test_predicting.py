"""What the simulator predicts from the parts of a run that were measured alone."""

import pytest

from tfsched.bench import BenchConfig, BenchError, predicting, run

PLANNERS = ("pace", "mg-wfbp", "us-byte", "buckets", "optimal", "prophet-plan")
NAMES = ("tio", "fifo", "p3", *PLANNERS, "tio:barrier=false", "fifo:barrier=false", "dear:barrier=false")


def measured(workers=2, **changes):
    link_s = 2 * (workers - 1) / workers * 96e6 * 8 / 1e9
    bounds = {"compute_s": 1.0, "closed_form_s": link_s, "tcp_s": 1.05 * link_s, "compute_p95_over_p50": 1.0}
    settings = {name: {"median_s": 1.5} for name in ("vanilla", *NAMES)}
    given = {"api": "mirrored", "model": "mlp24", "workers": workers, "bandwidth_bps": 1e9, "gradient_bytes": 96_000_000}
    return {**given, "bounds": bounds, "settings": settings, **changes}


@pytest.mark.parametrize("workers", [2, 3])
def test_all_reduced_steps_are_predicted_between_their_bounds(workers):
    result = measured(workers)
    predicted = predicting.predict(result, iterations=2)
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
    before, after = (predicting.predict(one, iterations=2) for one in (result, slower))
    assert all(0.999 * before[name] < after[name] < 1.21 * before[name] for name in NAMES)
    assert after["tio:barrier=false"] > 1.1 * before["tio:barrier=false"]


def test_models_without_a_profile_that_fits_are_not_predicted():
    for changes, message in (
        ({"model": "toy"}, "there is no built-in profile of model 'toy'"),
        (
            {"gradient_bytes": 90_000_000},
            "the built-in profile of model 'mlp24' has 96 MB and its gradients here have 90 MB",
        ),
        ({"bandwidth_bps": None}, "the links have no limit"),
    ):
        with pytest.raises(BenchError, match=message):
            predicting.predict(measured(**changes))
    result = measured(model="toy")
    predicting.add_to(result)
    assert result["notes"] == ["no prediction: there is no built-in profile of model 'toy'"]
    assert all(row["predicted_s"] is None and row["prediction_error"] is None for row in result["settings"].values())


def test_perceptrons_of_any_size_need_no_profile():
    sized = predicting.predict(measured(model="mlp24x1000"), iterations=2)
    assert sized == pytest.approx(predicting.predict(measured(), iterations=2), rel=0.02)


def test_steps_with_two_servers_and_two_workers_are_predicted(capsys):
    settings = ["vanilla", "bytescheduler", "bytescheduler:partition_bytes=65536:barrier=false"]
    given = {"models": ["mlp4x256"], "ps": 2, "workers": 2, "phase": "train", "batch": 4, "link": "emulated"}
    result = run(BenchConfig(**given, bandwidth="50mbit", settings=settings, steps=2, warmup=1, predict=True))
    assert result["bounds"]["beside_s"] > 0
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
