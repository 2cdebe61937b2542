"""Real runs of tiny models: every process, server and session is the one a user gets."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tfsched import Options
from tfsched.bench import BenchConfig, BenchError, run, task
from tfsched.bench.cluster import Cluster
from tfsched.bench.command import trace_model
from tfsched.bench.links import Link
from tfsched.bench.runner import exchange_setting
from tfsched.bench.settings import TFSCHED, find_settings
from tfsched.tracing import load_trace
from tfsched.tracing.directions import direction, in_background
from tfsched.tracing.timeline import timeline

NONE = Link("none", None)


def toy(**changes) -> BenchConfig:
    return BenchConfig(
        **{
            "models": ["toy"],
            "link": "none",
            "settings": ["vanilla"],
            "batch": 4,
            "steps": 3,
            "warmup": 1,
            "timeout_s": 90.0,
            **changes,
        }
    )


def test_forward_run_writes_everything(tmp_path, capsys):
    paths = {"json": str(tmp_path / "a.json"), "plot": str(tmp_path / "a.png"), "trace": str(tmp_path / "a.trace.json.gz")}
    result = run(toy(claims=True, claims_steps=5, **paths))
    assert json.loads((tmp_path / "a.json").read_text()) == result
    assert result["model"] == "toy"
    assert result["bandwidth_bps"] is None
    assert result["link"] == "none"
    assert result["batch"] == 4
    assert len(result["settings"]["vanilla"]["steps_s"]) == 3
    assert result["settings"]["vanilla"]["ratio_to_vanilla"] == 1.0
    assert result["settings"]["vanilla"]["straggler"] == 0.0
    assert result["claims"]["steps"] == 5
    assert all(link["in"] > 0 for link in result["claims"]["links_s"])
    assert (tmp_path / "a.png").stat().st_size > 1000
    assert (tmp_path / "a-claims.png").stat().st_size > 1000
    trace = load_trace(paths["trace"])
    assert len(trace.steps) == 5
    assert trace.receivers() == ["/job:worker/replica:0/task:0"]
    printed = capsys.readouterr().out
    assert "vanilla" in printed
    assert "bounds: lower" in printed


def test_training_on_two_ps_and_two_workers_quietly(capsys):
    result = run(toy(phase="train", ps=2, workers=2, steps=4, block=2, quiet=True))
    assert result["bounds"]["push_s"] > 0
    assert result["block"] == result["rounds"] == len(result["settings"]["vanilla"]["steps_s"]) == 2
    assert result["ps_bytes"] == {"/job:ps/task:0": 2 * 256 * 256 * 4, "/job:ps/task:1": 256 * 256 * 4}
    assert result["imbalance"] == pytest.approx(4 / 3)
    assert 0 <= result["settings"]["vanilla"]["straggler"] <= 1
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_several_models_give_a_list_and_auto_finds_a_batch():
    results = run(toy(models=["toy", "toy"], batch="auto", steps=1, quiet=True))
    assert [result["model"] for result in results] == ["toy", "toy"]
    assert all(result["batch"] >= 1 for result in results)


def test_ordered_settings_beside_vanilla(own_namespaces):
    result = run(toy(link="netns", bandwidth="400mbit", settings=["vanilla", "tio", "tao"], quiet=True))
    assert list(result["settings"]) == ["vanilla", "tio", "tao"]
    assert all(len(row["steps_s"]) == 3 for row in result["settings"].values())
    # 786 kB at 400 Mbit/s, of which the bucket's 256 kB may pass at once.
    assert result["bounds"]["communication_s"] > 0.005
    assert own_namespaces() == []


def test_emulated_link_limits_and_says_so():
    result = run(toy(link="emulated", bandwidth="100mbit", settings=["vanilla", "tio"], quiet=True))
    assert "EMULATED" in result["notes"][0]
    assert result["bounds"]["communication_s"] > 0.8 * 786_432 * 8 / 100e6
    for row in result["settings"].values():
        assert min(row["steps_s"]) > 0.8 * 786_432 * 8 / 100e6


def test_trace_of_a_model():
    config = toy(settings=["tio"], quiet=True)
    trace = trace_model(config)
    assert len(trace.steps) == config.steps
    assert trace.receivers()
    with pytest.raises(BenchError, match="one setting"):
        trace_model(toy(settings=["vanilla", "tio"]))


def test_a_trace_of_training_shows_what_is_pushed():
    trace = trace_model(toy(settings=["tio"], phase="train", quiet=True))
    events = timeline(trace)["traceEvents"]
    tracks = {event["args"]["name"].rstrip(" 0123456789") for event in events if event["name"] == "thread_name"}
    assert {"pull receiving", "push receiving", "pull sending", "push sending"} <= tracks
    assert not any("background" in track for track in tracks)
    pushed = [row for row in trace.steps[-1].sends if "/job:worker/" in row["from"]]
    assert sum(row["bytes"] for row in pushed) >= 3 * 256 * 256 * 4


def build(cluster: Cluster, phase: str = "forward") -> None:
    cluster.call(do="build", graph="step", model="toy", phase=phase, batch=4, seed=0)
    cluster.call(do="build", graph="communication", model="toy", phase=phase, batch=4, seed=0)


def test_a_block_is_measured_after_a_failed_request_and_before_one_that_takes_too_long():
    with Cluster(1, 1, NONE, timeout_s=90) as cluster:
        with pytest.raises(BenchError, match="model 'nothing' is unknown"):
            cluster.call(do="build", graph="step", model="nothing", phase="forward", batch=1, seed=0)
        build(cluster, "train")
        cluster.call(do="open", session="step", graph="step", protocol="grpc")
        answer = cluster.call(do="run", session="step", fetch="step", count=5)
        assert len(answer["steps_s"]) == len(answer["ends_s"]) == len(answer["finishes_s"]) == 5
        assert sum(answer["steps_s"]) <= answer["block_s"] < sum(answer["steps_s"]) + 1
        assert answer["ends_s"] == sorted(answer["ends_s"])
        assert sum(answer["steps_s"]) <= answer["ends_s"][-1] <= answer["block_s"]
        with pytest.raises(BenchError, match="worker0 did not finish 'run' within 1 s"):
            cluster.call(timeout_s=1.0, do="run", session="step", fetch="step", count=1_000_000)


def received_bytes(cluster: Cluster, host: str) -> int:
    """What a host's link has brought to it so far."""
    process = cluster.machines.hosts.exec(host, ["cat", "/proc/net/dev"], stdout=subprocess.PIPE, text=True)
    output, _ = process.communicate(timeout=20)
    (line,) = [line for line in output.splitlines() if line.strip().startswith("eth0:")]
    return int(line.split(":")[1].split()[0])


def test_every_byte_of_every_worker_crosses_its_own_link(own_namespaces):
    toy_bytes = 3 * 256 * 256 * 4
    with Cluster(2, 2, Link("netns", 1e9), timeout_s=90) as cluster:
        build(cluster, "train")
        for session, graph in (("step", "step"), ("alone", "communication")):
            cluster.call(do="open", session=session, graph=graph, protocol="grpc", plain=graph != "step")

        def moved(session: str, fetch: str, hosts: list[str]) -> dict[str, int]:
            cluster.call(do="run", session=session, fetch=fetch)
            before = {host: received_bytes(cluster, host) for host in hosts}
            cluster.call(do="run", session=session, fetch=fetch, count=4)
            return {host: (received_bytes(cluster, host) - before[host]) // 4 for host in hosts}

        workers, ps = ["worker0", "worker1"], ["ps0", "ps1"]
        for size in moved("alone", "pull", workers).values():
            assert toy_bytes <= size < 1.3 * toy_bytes
        pushed = moved("alone", "push", ps)
        assert 2 * toy_bytes <= sum(pushed.values()) < 2.6 * toy_bytes
        for size in moved("step", "step", workers).values():
            assert toy_bytes <= size < 1.3 * toy_bytes
        assert sum(moved("step", "step", ps).values()) >= 2 * toy_bytes
        cluster.call(do="build", graph="exchange", model="toy", phase="train", batch=None, seed=0)
        cluster.call(do="open", session="exchange", graph="exchange", protocol="grpc")
        for size in moved("exchange", "step", workers).values():
            assert toy_bytes <= size < 1.3 * toy_bytes
        assert 2 * toy_bytes <= sum(moved("exchange", "step", ps).values()) < 2.6 * toy_bytes
    assert own_namespaces() == []


def test_a_dead_task_is_named_and_nothing_is_left(own_namespaces):
    with (
        pytest.raises(BenchError, match="task ps0 died with exit code -9"),
        Cluster(1, 1, Link("netns", 1e9), timeout_s=90) as cluster,
    ):
        build(cluster)
        cluster.call(do="open", session="step", graph="step", protocol="grpc")
        os.killpg(cluster.pid("ps0"), signal.SIGKILL)
        for _ in range(50):
            cluster.call(do="run", session="step", fetch="step", count=1000)
    assert own_namespaces() == []


def test_tasks_end_with_a_killed_parent(tmp_path):
    script = (
        "import time\nfrom tfsched.bench.cluster import Cluster\n"
        "from tfsched.bench.links import Link\n"
        "with Cluster(1, 1, Link('none', None)) as cluster:\n"
        "    print(cluster.pid('ps0'), cluster.pid('worker0'), flush=True)\n    time.sleep(60)\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parent = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ["PYTHONPATH"]]), "TMPDIR": str(tmp_path)},
    )
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait(10)
    wait_until_gone(pids)


def wait_until_gone(pids):
    deadline_s = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


@pytest.mark.parametrize("how", ["the parent is killed", "stdin is closed"])
def test_a_task_ends_even_in_a_call_that_keeps_the_interpreters_lock(how):
    task = (
        "import ctypes; from tfsched.bench.guard import end_with_parent; end_with_parent()\n"
        "print(flush=True); ctypes.PyDLL(None).sleep(60)"
    )
    parent = (
        "import subprocess, sys, time\n"
        "pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)\n"
        f"task = subprocess.Popen([sys.executable, '-c', {task!r}], **pipes)\n"
        "task.stdout.readline()\nprint(task.pid, flush=True)\n"
        "sys.stdin.readline()\ntask.stdin.close()\ntask.wait()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        pid = int(process.stdout.readline())
        assert os.path.exists(f"/proc/{pid}")
        if how == "stdin is closed":
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.wait(20) == 0
        else:
            process.kill()
        wait_until_gone([pid])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"models": []}, "no model given"),
        ({"models": ["lenet"]}, "model 'lenet' is unknown: choose from"),
        ({"settings": ["quick"]}, "setting 'quick' is unknown"),
        ({"phase": "backward"}, "phase 'backward' is unknown"),
        ({"ps": 0}, "--ps is 0"),
        ({"workers": 65}, "--workers is 65"),
        ({"steps": 0}, "--steps is 0"),
        ({"batch": "many"}, "batch 'many' is not usable"),
        ({"batch": 0}, "batch 0 is not usable"),
        ({"bandwidth": "quick"}, "bandwidth 'quick' is not understood"),
        ({"block": "some"}, "block 'some' is not usable"),
        ({"block": 0}, "block 0 is not usable"),
        ({"claims": True, "block": 2}, "--claims looks at single steps"),
        ({"settings": ["tio:barrier=maybe"]}, "barrier"),
        ({"intra_op_threads": "many"}, "--intra_op_threads is 'many': give auto"),
        ({"inter_op_threads": -1}, "--inter_op_threads is -1: give auto"),
        ({"json": "/nowhere/a.json"}, "'/nowhere/a.json' cannot be written"),
        ({"claims": True, "settings": ["tio"]}, "add vanilla"),
        ({"trace": "/nowhere/a.json"}, "'/nowhere/a.json' cannot be written"),
        ({"trace": "a.json", "models": ["toy", "toy"]}, "--trace a.json is one file and --model names 2 models"),
        ({"trace": "a.json", "api": "strategy"}, "--trace traces the steps of sessions"),
    ],
)
def test_mistakes_are_told_before_anything_starts(changes, sentence):
    begin_s = time.monotonic()
    with pytest.raises(BenchError, match=sentence):
        run(toy(**changes))
    assert time.monotonic() - begin_s < 2


def test_presets_train_beside_vanilla():
    settings = ["vanilla", "tictac", "p3", "bytescheduler", "bytescheduler+barrier-crossing"]
    result = run(toy(phase="train", settings=settings, steps=4, block=2, quiet=True))
    assert {name: len(row["steps_s"]) for name, row in result["settings"].items()} == dict.fromkeys(settings, 2)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (["vanilla"], ("grpc", None)),
        (["vanilla", "tio"], (TFSCHED, ("tio", True))),
        (["tao", "p3:barrier=false"], (TFSCHED, ("tio", False))),
        (["vanilla", "optimal"], (TFSCHED, ("tio", True))),
    ],
)
def test_computing_beside_communication_exchanges_as_the_settings_do(settings, expected):
    chosen = exchange_setting(find_settings(settings))
    options = chosen.options and Options(**chosen.options)
    assert (chosen.protocol, options and (options.ordering, options.barrier)) == expected
    result = run(toy(phase="train", workers=2, settings=settings, steps=1, beside=True, quiet=True))
    assert 0 < result["bounds"]["beside_s"] < 60


def test_a_long_block_shows_its_steady_state_and_its_ends(capsys):
    result = run(toy(phase="train", settings=["vanilla", "bytescheduler+barrier-crossing"], steps=14, block=7, beside=True))
    assert result["block"] == 7 and result["rounds"] == 2
    for row in result["settings"].values():
        assert len(row["steps_s"]) == 2
        assert all(0 < step_s < 60 for step_s in (*row["steps_s"], row["with_ends_s"]))
        assert row["bound_ratio_with_ends"] == pytest.approx(row["with_ends_s"] / result["bounds"]["lower_with_ends_s"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "steady state in blocks of 7 steps" in printed


def test_a_trace_across_the_barrier_has_background_pushes():
    trace = trace_model(toy(settings=["bytescheduler+barrier-crossing"], phase="train", quiet=True))
    events = timeline(trace)["traceEvents"]
    tracks = {event["args"]["name"].rstrip(" 0123456789") for event in events if event["name"] == "thread_name"}
    assert {"barrier", "pull sending", "background push sending", "background pull sending"} <= tracks
    # A step's pushes may begin after the next step has: they are counted to that one then.
    sends = [row for step in trace.steps for row in step.sends]
    pushed = [row for row in sends if in_background(row) and direction(row["from"], row["to"]) == "push"]
    assert sum(row["bytes"] for row in pushed) >= len(trace.steps) * 3 * 256 * 256 * 4


def test_a_failure_in_a_function_is_told_by_its_reason():
    """TensorFlow tells where the program has made the op, line by line, before it says what was wrong."""
    told = (
        "Graph execution error:\n\nDetected at node Gather defined at (most recent call last):\n"
        '  File "<frozen runpy>", line 198, in _run_module_as_main\n\n'
        '  File "train.py", line 12, in step\n\nindices = 7 is not in [0, 3)\n\t [[{{node Gather}}]] [Op:__inference_step_9]'
    )
    sentence = task._sentence("worker 0", ValueError(told))
    assert sentence == "worker 0 could not go on (ValueError): indices = 7 is not in [0, 3)"
