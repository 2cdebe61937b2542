"""Training across the barrier gives the same bits as vanilla: every loss of 200 steps and every variable after them."""

import itertools
import math

import pytest

from .cluster import STOCK, Cluster

pytestmark = pytest.mark.timeout(600)
STEPS = 200
# What the sums add up in which order must depend on nothing: oneDNN chooses by the number of idle threads.
FIXED = {"TF_ENABLE_ONEDNN_OPTS": "0"}
OPTIMIZERS = ("sgd", "momentum", "adam", "rmsprop", "adagrad", "by_hand")


def start(ps, workers, **more):
    names = [f"ps{i}" for i in range(ps)] + [f"worker{i}" for i in range(workers)]
    return Cluster(ps=ps, workers=workers, environment=dict.fromkeys(names, FIXED), **more)


@pytest.fixture(scope="module", params=[(1, 1), (2, 1), (2, 2)], ids=["1ps-1worker", "2ps-1worker", "2ps-2workers"])
def pair(request):
    """A stock cluster and one with tfsched, of one size."""
    ps, workers = request.param
    with start(ps, workers, protocol=STOCK) as stock, start(ps, workers) as crossing:
        yield stock, crossing, workers


def check(result):
    """That the training really was one."""
    assert len(result["losses"]) == STEPS
    assert all(math.isfinite(float.fromhex(loss)) for loss in result["losses"])
    assert len(set(result["losses"])) > STEPS * 0.9
    assert len(set(result["variables"].values())) > 5


@pytest.mark.parametrize("optimizer,clip", list(itertools.product(OPTIMIZERS, [False, True])))
def test_identical(pair, optimizer, clip):
    stock, crossing, workers = pair
    arguments = {"steps": STEPS, "optimizer": optimizer, "clip": clip, "workers": workers}
    pending = stock.submit("worker0", "crossing.train", options=None, **arguments)
    got = crossing.call("worker0", "crossing.train", limit_s=300, options={"barrier": False}, **arguments)
    wanted = pending.result(300)
    check(wanted)
    assert got == wanted
    seen = crossing.call("worker0", "crossing.passed")
    assert seen["errors"] == 0, seen["last_error"]
    assert seen["kept"] == {}
    assert seen["crossing"] >= 8  # weights and biases; slots besides
    done = crossing.stats("worker0")
    assert done["background_calls"] >= STEPS
    assert done["background_failed"] == done["background_outstanding"] == 0
