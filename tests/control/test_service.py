"""A cluster that trains while its control services and metrics are asked: same results, right answers, faults told."""

import re
import threading
import time
import urllib.error
import urllib.request
from concurrent import futures

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.cluster import Cluster, TaskError, trained_while, wait_until
from tfsched.bench.ports import free_ports
from tfsched.control.client import Tasks
from tfsched.control.fields import FIELDS, Kind, metric_name
from tfsched.control.service import DEFAULT_TRANSFERS, MOST_TRANSFERS

pytestmark = pytest.mark.timeout(240)
PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"
TOKEN = "only-for-this-test"
STEPS = 150


class Watched:
    """A parameter server without a token and a worker with one."""

    def __init__(self, cluster, ports):
        self.cluster = cluster
        self.ps, self.worker = (f"127.0.0.1:{port}" for port in ports[:2])
        self.ps_metrics, self.worker_metrics = (f"http://127.0.0.1:{port}/metrics" for port in ports[2:])


@pytest.fixture(scope="module")
def watched(nursery):
    ports = free_ports(4)
    environment = {
        "ps0": {"TFSCHED_CONTROL_PORT": f"{ports[0]}", "TFSCHED_METRICS_PORT": f"{ports[2]}"},
        "worker0": {
            "TFSCHED_CONTROL_PORT": f"{ports[1]}",
            "TFSCHED_METRICS_PORT": f"{ports[3]}",
            "TFSCHED_CONTROL_TOKEN": TOKEN,
        },
    }
    with Cluster(nursery=nursery, environment=environment) as cluster:
        yield Watched(cluster, ports)


def scraped(url, token=None):
    """Metric -> (its kind, its value)."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=20) as answer:
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return {sample.name: (family.type, sample.value, sample.labels) for family in families for sample in family.samples}


def test_training_is_the_same_while_it_is_watched(watched):
    cluster = watched.cluster
    with Tasks([watched.ps]) as ps, Tasks([watched.worker], TOKEN) as worker:

        def ask():
            answers = [*ps.ask(MOST_TRANSFERS), *worker.ask(MOST_TRANSFERS)]
            assert [answer.error for answer in answers] == ["", ""]
            assert "tfsched_ordered_bytes_total" in scraped(watched.ps_metrics)

        cluster.call("worker0", "common.open_session", options={})
        gave = trained_while(cluster, ask, times=3, steps=STEPS)
    cluster.call("worker0", "common.open_session", options={})
    assert cluster.call("worker0", "common.run", count=len(gave)) == gave
    assert len(set(gave[:STEPS])) == STEPS  # it really trains


def test_answers_are_what_the_process_says_of_itself(watched):
    cluster = watched.cluster
    cluster.wait_idle("ps0")
    with Tasks([watched.ps]) as ps, Tasks([watched.worker], TOKEN) as worker:
        (answer,), (master,) = ps.ask(5), worker.ask()
        stats = cluster.stats("ps0")
        assert {**answer.numbers, **answer.texts} == stats and stats["tasks"] >= STEPS * 8
        assert answer.tasks == (PS,) and master.tasks == (WORKER,)
        assert answer.identity[1] == cluster.pid("ps0")
        # The graph was scheduled by its master.
        graphs = master.parts["graphs"]
        assert (graphs["ordering"], graphs["policy"], graphs["credit_bytes"]) == ("tio", "tictac", 1_000_000)
        assert answer.parts == {} and master.transfers is None
        told = [(one.name, one.sender, one.receiver, one.bytes, one.rank, one.released_us) for one in answer.transfers]
        rows = cluster.call("ps0", "common.transfers")
        keys = ("name", "from", "to", "bytes", "rank", "released_us")
        assert told == [tuple(row[key] for key in keys) for row in rows[-5:]]


def test_an_answer_has_its_limit(watched):
    rows = watched.cluster.call("ps0", "common.transfers")
    assert len(rows) > MOST_TRANSFERS
    for last in (1, 7, len(rows), len(rows) + 1):
        assert watched.cluster.call("ps0", "tests.control.scenarios.transfers", last=last) == rows[-last:]
    with pytest.raises(TaskError, match="last is 0; give how many"):
        watched.cluster.call("ps0", "tests.control.scenarios.transfers", last=0)
    with Tasks([watched.ps]) as tasks:
        (answer,) = tasks.ask(1_000_000)
        assert len(answer.transfers) == MOST_TRANSFERS
        (answer,) = tasks.ask(-1)
        assert len(answer.transfers) == DEFAULT_TRANSFERS


def test_every_number_of_stats_is_a_metric(watched):
    watched.cluster.wait_idle("ps0")
    stats, found = watched.cluster.stats("ps0"), scraped(watched.ps_metrics)
    assert stats.keys() == FIELDS.keys()
    for key, value in stats.items():
        field = FIELDS[key]
        if field.kind is Kind.TEXT:
            assert found["tfsched_info"][2][key] == value
        else:
            kind, number, _ = found[metric_name(key)]
            assert kind == field.kind.value
            assert number == pytest.approx(value * field.scale)
    for name in ("watched", "idle"):
        assert found[f"tfsched_{name}_seconds_total"][0] == "counter" and found[f"tfsched_{name}_seconds_total"][1] > 0
    assert found["tfsched_info"][2]["task"] == PS
    assert found["tfsched_ordered_bytes_total"][1] > 0


def test_a_token_guards_both_ports(watched):
    for token in (None, "wrong", TOKEN + "x", TOKEN[:-1]):
        with Tasks([watched.worker], token) as tasks:
            (answer,) = tasks.ask(1)
            assert answer.error == "the token is missing or wrong" and not answer.numbers and answer.transfers is None
        with pytest.raises(urllib.error.HTTPError) as refused:
            scraped(watched.worker_metrics, token)
        assert refused.value.code == 401
    assert scraped(watched.worker_metrics, TOKEN)["tfsched_servers"][1] == 1


@pytest.mark.parametrize(("path", "method", "code"), [("/", "GET", 404), ("/metrics", "POST", 405)])
def test_nothing_but_metrics_is_served(watched, path, method, code):
    url = watched.ps_metrics.removesuffix("/metrics") + path
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=20)
    assert refused.value.code == code


def test_top_shows_what_tasks_do(watched, top):
    over = threading.Event()

    def train():
        while not over.is_set():
            watched.cluster.call("worker0", "common.run", count=10)

    training = threading.Thread(target=train)
    training.start()
    try:
        code, printed = top("--once", "--interval=0.5", "--token", TOKEN, f"{watched.ps},{watched.worker}")
    finally:
        over.set()
        training.join(60)
    assert code == 0, printed
    rows = shown(printed)
    for task in (PS, WORKER):
        assert rows[task]["out/s"][0] in "123456789" and rows[task]["in/s"][0] in "123456789"
        assert re.fullmatch(r"\d+\.\d ms|\d+\.\d\d s", rows[task]["step"]) and rows[task]["idle"].endswith("%")
        assert rows[task]["crossing"].isdecimal()
    assert float(rows[PS]["ordered/s"]) > 0
    assert re.fullmatch(r"\d+(\.\d)? (bytes|kB|MB) / 1\.0 MB", rows[PS]["credit"])
    assert rows[WORKER]["credit"] == "- / 1.0 MB"  # it sends nothing in order under tictac
    assert rows[WORKER]["policy"] == "tictac"


def test_steps_and_crossing_variables_are_counted_in_every_task_that_takes_part(watched):
    cluster = watched.cluster
    options = {"barrier": False, "policy": "bytescheduler", "credit_bytes": 3_000_000}
    cluster.call("worker0", "common.open_session", name="crossing", options=options, layers=3)
    before = {name: cluster.stats(name) for name in ("ps0", "worker0")}
    began_s = time.monotonic()
    cluster.call("worker0", "common.run", name="crossing", count=20)
    cluster.call("worker0", "common.close_session", name="crossing")
    passed_us = (time.monotonic() - began_s) * 1e6

    def grown(name, key):
        return cluster.stats(name)[key] - before[name][key]

    # Not twice as many, although each step has a background function. To close asks for updates, in steps of its own.
    for name in ("ps0", "worker0"):
        wait_until(lambda name=name: grown(name, "steps") >= 20, 20, f"20 steps of {name}")
        assert grown(name, "steps") <= 24 and 0 < grown(name, "step_us_total") < passed_us
    assert [cluster.stats(name)["crossing_variables"] for name in ("ps0", "worker0")] == [0, 3]
    # The values and the gradients of three variables, 3 * 256 KiB in each direction of each step.
    for name in ("ps0", "worker0"):
        assert grown(name, "sending_us_total") > 0 and grown(name, "wire_byte_seconds") > 0
        assert cluster.stats(name)["credit_in_force_bytes"] == 3_000_000


def shown(printed):
    """Task -> title -> what a printed table says."""
    titles, *rows = [re.split(r"\s{2,}", line.strip()) for line in printed.splitlines() if re.search(r"\S\s{2,}\S", line)]
    return {row[0]: dict(zip(titles, row, strict=True)) for row in rows}


def test_a_task_that_is_killed_is_shown_as_such_and_comes_back(watched, top):
    results = []
    asking = threading.Thread(
        target=lambda: results.append(top("--once", "--interval=2", "--token", TOKEN, watched.ps, watched.worker))
    )
    asking.start()
    time.sleep(1)
    watched.cluster.kill("worker0")
    asking.join(30)
    ((code, printed),) = results
    assert code == 0, printed
    rows = shown(printed)
    assert rows[PS]["queue"].isdecimal() and set(rows[watched.worker].values()) == {watched.worker, "-"}
    assert f"{watched.worker}: no answer (Connection refused" in printed
    with Tasks([watched.ps, watched.worker], TOKEN) as tasks:
        assert [bool(answer.error) for answer in tasks.ask()] == [False, True]
        watched.cluster.restart("worker0")
        wait_until(lambda: not any(answer.error for answer in tasks.ask()), 30, "the task that was started again")
    watched.cluster.kill("ps0")
    watched.cluster.kill("worker0")
    code, printed = top("--once", "--interval=0.1", watched.ps, watched.worker)
    assert code == 1 and printed.count("Connection refused") == 2


def test_workers_that_all_reduce_tell_of_it_and_leave_while_they_are_asked(nursery):
    ports = free_ports(2)
    environment = {f"worker{number}": {"TFSCHED_CONTROL_PORT": f"{port}"} for number, port in enumerate(ports)}
    with (
        Cluster(ps=0, workers=2, nursery=nursery, mirrored=True, environment=environment) as cluster,
        Tasks([f"127.0.0.1:{port}" for port in ports]) as tasks,
    ):
        working = [cluster.submit(name, "parallel.in_loops") for name in cluster.names]
        assert working[0].result(100) == working[1].result(100)
        answers = tasks.ask()
        for number, answer in enumerate(answers):
            assert answer.tasks == (f"/job:worker/task:{number}",)
            assert answer.numbers["all_reduces"] == cluster.stats(f"worker{number}")["all_reduces"] > 0
            assert answer.parts["functions"]["policy"] == "tictac"
            assert answer.numbers["steps"] == 1  # of two that all-reduce: the last one's end is not known
        over, told = threading.Event(), []

        def ask():
            while not over.is_set():
                told.append(tasks.ask(MOST_TRANSFERS))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            wait_until(lambda: len(told) > 2, 20, "answers")
            with futures.ThreadPoolExecutor(2) as pool:
                assert list(pool.map(cluster.leave, cluster.names)) == [0, 0]
        finally:
            over.set()
            asking.join(20)
        assert not any(answer.error for answer in told[0]) and all(answer.error for answer in tasks.ask())
        for name in cluster.names:
            assert "Traceback" not in cluster.log(name), cluster.log(name)
