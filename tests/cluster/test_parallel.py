"""tfsched.parallel on real workers: values of collectives, training as by one process, mistakes, a worker that is lost."""

from concurrent import futures

import numpy as np
import pytest

from tfsched.bench.testbed import Testbed, netns_available

from .cluster import TFSCHED, Cluster, TaskDied, TaskError, wait_until

pytestmark = pytest.mark.timeout(540)
LIMIT_S = 240


def everywhere(cluster, scenario, **arguments):
    """Lets every worker run the scenario; their results."""
    pending = [cluster.submit(name, f"parallel.{scenario}", **arguments) for name in cluster.names]
    return [one.result(LIMIT_S) for one in pending]


def workers(nursery, count):
    return Cluster(ps=0, workers=count, nursery=nursery, mirrored=True, protocol=TFSCHED)


@pytest.fixture(scope="module")
def pair(nursery):
    with workers(nursery, 2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three(nursery):
    with workers(nursery, 3) as cluster:
        yield cluster


def vectors(count, members):
    return np.arange(1, count + 1) + np.arange(members)[:, None]


@pytest.mark.parametrize("members", [2, 3])
def test_values(request, members):
    cluster = request.getfixturevalue("pair" if members == 2 else "three")
    results = everywhere(cluster, "values")
    combine = {"AVERAGE": np.mean, "SUM": np.sum, "MIN": np.min, "MAX": np.max, "PRODUCT": np.prod}
    for rank, result in enumerate(results):
        for way in ("eager", "function", "again"):
            got = result[way]
            for name, function in combine.items():
                assert got[name] == [function(vectors(count, members), axis=0).tolist() for count in (3, 500)]
            four, many, three, table = got["grouped"]
            assert [four, three, [*table[0], *table[1]]] == [vectors(count, members).sum(0).tolist() for count in (4, 3, 6)]
            assert many == vectors(200_000, members).sum(0).astype(np.float32).tolist()
            assert got["gathered"] == [
                [2 * row + rank + 1, 2 * row + rank + 2] for rank in range(members) for row in range(rank + 1)
            ]
            assert got["gathered_scalars"] == list(range(members))
            assert got["gathered_nothing"] == [[0, 0, 0]] * 2
            assert got["broadcast"] == [[2, 3, 4]] * 4 and got["broadcast_booleans"] == [1, 0]
        assert result["variables"] == [[2, 3, 4], [2, 3], [2]]
        assert result["object"] == {"told by": 1, "long": "x" * 1001}
        assert result["sizes"] == [rank, members, rank, members]


def test_a_function_in_a_loop_that_is_traced_at_different_times(pair):
    for result in everywhere(pair, "in_loops"):
        assert result == [[2.0 * 3 + 3 + 6] * 100, [2.0 * 5 + 5 + 20] * 100]


def test_input_that_ends_within_a_step_leaves_all_workers_at_the_same_count(pair):
    assert everywhere(pair, "until_the_end") == [[2.0 * turn for turn in range(1, 31)]] * 2


def close(got, wanted):
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("library", "compiled"),
    [("keras", {}), ("keras", {"steps_per_execution": 2}), ("tf_keras", {})],
    ids=["keras", "keras-steps", "tf_keras"],
)
def test_fit_is_that_of_one_process(pair, library, compiled):
    before = pair.stats("worker0")
    first, second = everywhere(pair, "fit", library=library, **compiled)
    assert first["weights"] == second["weights"] and first["history"] == second["history"]
    assert first["class"] == "Adam"
    after = pair.stats("worker0")
    assert after["packs_scheduled"] - before["packs_scheduled"] == 8  # one a step
    assert after["all_reduces"] > before["all_reduces"] and after["packs_stock"] == 0
    wanted = pair.call("worker0", "parallel.fit", library=library, alone=True, limit_s=LIMIT_S)
    close(first["weights"], wanted["weights"])
    close(first["history"]["loss"], wanted["history"]["loss"])


def test_fit_across_the_barrier_is_identical(pair):
    kept = everywhere(pair, "fit_across_the_barrier", crosses=False)
    crossed = everywhere(pair, "fit_across_the_barrier", crosses=True)
    assert [one.pop("crossed") for one in kept] == [0, 0]
    assert [one.pop("crossed") for one in crossed] == [8, 8]
    assert kept[0]["weights"] == kept[1]["weights"]
    assert crossed == kept


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_the_learning_rate_grows_and_follows_its_schedule(pair, library):
    for rates in everywhere(pair, "warmup", library=library):
        np.testing.assert_allclose(rates, [0.2, 0.25, 0.3, 0.35, 0.4, 0.4, 0.0004, 0.0004], rtol=1e-5)


def test_a_model_is_saved_with_the_optimizer_it_had(pair, tmp_path):
    assert everywhere(pair, "saved", path=str(tmp_path / "model")) == [[True, 0.5]] * 2


def test_a_custom_loop_is_that_of_one_process(three):
    before = three.stats("worker1")["all_reduces"]
    wanted = three.call("worker0", "parallel.loop", alone=True)
    results = everywhere(three, "loop")
    assert results[0] == results[1] == results[2]
    close(results[0], wanted)
    dense = everywhere(three, "loop", sparse_as_dense=True)
    assert dense[0] == dense[1] == dense[2]
    close(dense[0], wanted)
    assert three.stats("worker1")["all_reduces"] - before >= 10
    halves = everywhere(three, "loop", compression="bf16")
    assert halves[0] == halves[2]
    np.testing.assert_allclose(halves[0][1], wanted[1], rtol=0.1, atol=0.01)
    assert halves[0][1] != results[0][1]


def test_gradients_of_and_with_collectives(pair):
    for got_by_max, got_through_sum, said in everywhere(pair, "gradient"):
        assert got_by_max == [2.0] * 100 and got_through_sum == [3.0] * 100
        assert said == "TfschedError: an all-reduce by MAX has no gradient; use Average or Sum, or tf.stop_gradient."


def test_each_mistake_has_its_sentence(pair):
    wanted = {
        "xla": "jit_compile=False",
        "compiled": "jit_compile=False",
        "scaled": "DistributedOptimizer(LossScaleOptimizer(optimizer))",
        "scheduled": "is the schedule ExponentialDecay",
        "graph": "in a graph of tf.compat.v1",
        "op": "got op 'mean'",
        "type": "type string",
        "average": "int32 to average",
        "root": "root_rank is 2; there are 2 workers",
        "strings": "use broadcast_object",
        "columns": "float32[2, 3] on worker 0, float32[2, 4] on worker 1",
        "types": "float64[2] on worker 0, float32[2] on worker 1",
        "shapes": "float32[2] on worker 0, float32[3] on worker 1",
        "shapes_in_function": "tensors of different types or shapes",
        "variables": "float32[2] on worker 0, float32[4] on worker 1",
        "optimizer": "got 3; give an optimizer",
        "twice": "wrap an optimizer once",
        "object": "call it in eager mode",
        "options": "give a tfsched.Options",
        "compression": "give Compression.none, .fp16 or .bf16",
        "sparse": "cannot be combined by MAX",
        "elsewhere": "join others in a new process",
        "without": "call tfsched.parallel.init() first",
    }
    for said, total in everywhere(pair, "mistakes"):
        assert {name: text for name, text in said.items() if wanted[name] not in str(text)} == {}
        kinds = {name: text.partition(":")[0] for name, text in said.items() if name != "shapes_in_function"}
        assert set(kinds.values()) == {"TfschedError"}, kinds
        assert total == [2.0]


def test_init_that_cannot_join_says_so(nursery):
    with workers(nursery, 1) as cluster:
        assert cluster.call("worker0", "parallel.alone") == [[[1, 2], [1, 2], [1, 2], [3, 3]], [0, 1, 0, 1], "a"]
    with workers(nursery, 2) as cluster:
        said = cluster.call("worker0", "parallel.too_late")
        assert said.startswith("TfschedError: init came after TensorFlow had begun to compute"), said
        said = cluster.call("worker1", "parallel.occupied")
        assert said.startswith("TfschedError: this worker cannot listen at 127.0.0.1:"), said


def test_init_ends_a_process_whose_others_do_not_come_and_says_so(nursery):
    with workers(nursery, 2) as cluster:
        with pytest.raises(TaskDied):
            cluster.call("worker0", "parallel.join_within", timeout_s=2, limit_s=60)
        wait_until(lambda: not cluster.alive("worker0"), 20, "the end of worker0")
        said = [line for line in cluster.log("worker0").splitlines() if line.startswith("tfsched: ")]
        own, other = cluster.addresses()["worker"]
        begin = f"tfsched: worker 0 ({own}) has waited 2 s in tfsched.parallel.init for the workers at {other} and ends;"
        assert len(said) == 1 and said[0].startswith(begin), cluster.log("worker0")
        cluster.restart("worker0")  # and where they come it goes on
        for one in [cluster.submit(name, "parallel.join_within", timeout_s=30) for name in cluster.names]:
            one.result(LIMIT_S)


@pytest.mark.skipif(not netns_available()[0], reason=netns_available()[1])
@pytest.mark.parametrize("count", [2, 3])
def test_pieces_follow_the_slowest_workers_link_without_a_new_start(nursery, count):
    least = 500_000 if count == 2 else 250_000
    names = [f"worker{number}" for number in range(count)]
    with Testbed(names) as testbed, Cluster(ps=0, workers=count, nursery=nursery, mirrored=True, testbed=testbed) as cluster:

        def largest():
            results = everywhere(cluster, "again", calls=8, elements=2_000_000)
            assert all(right for _, right in results)
            # All members have cut alike, else the sums would not be right.
            (size,) = {size for size, _ in results}
            return size

        wait_until(lambda: largest() > least, LIMIT_S, "larger pieces on a fast link")
        testbed.limit("worker0", 1e8)
        wait_until(lambda: largest() <= least, LIMIT_S, "the smallest pieces on a slow link")
        # With three workers larger pieces stayed: a worker that is asked for little at a time does not measure its pace.
        testbed.limit("worker0", 1e9)
        wait_until(lambda: largest() > least, LIMIT_S, "larger pieces on a faster link again")
        testbed.limit("worker0", 1e8)
        wait_until(lambda: largest() <= least, LIMIT_S, "the smallest pieces on a slower link")
        testbed.limit("worker0", 10e9)
        wait_until(lambda: largest() > least, LIMIT_S, "larger pieces on a link that has become fast")


def test_a_worker_that_has_finished_waits_until_the_others_have(nursery):
    slow = {"worker0": {"TFSCHED_EMULATED_BPS": "3e6"}}
    with Cluster(ps=0, workers=2, nursery=nursery, mirrored=True, environment=slow) as cluster:
        everywhere(cluster, "one_step", elements=100)
        # For five seconds the first worker's part is on its way to the second, which has sent its own at once.
        second = cluster.submit("worker1", "parallel.one_step", elements=500_000)
        assert cluster.call("worker0", "parallel.one_step", elements=500_000) == [2.0, 2.0]
        with futures.ThreadPoolExecutor(1) as pool:
            first_leaves = pool.submit(cluster.leave, "worker0")
            assert second.result(30) == [2.0, 2.0]
            assert cluster.leave("worker1") == 0 and first_leaves.result(60) == 0


def test_a_killed_worker_ends_the_others_steps(nursery):
    with workers(nursery, 2) as cluster:
        everywhere(cluster, "begin")
        wait_until(lambda: cluster.call("worker0", "parallel.progress")["steps"] > 3, 60, "training")
        cluster.kill("worker1")
        error = wait_until(lambda: cluster.call("worker0", "parallel.progress")["error"], 20, "an error in worker0")
        assert error["kind"] in ("UnavailableError", "AbortedError", "InternalError") and "task:1" in error["message"], error
        with pytest.raises(TaskError):
            cluster.call("worker0", "parallel.values", limit_s=20)
