"""The table's figures from answers, and mistakes on its command line; test_service.py has real tasks."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfsched.bench.ports import free_port
from tfsched.commands.top import in_force, said, used
from tfsched.control.client import Answer
from tfsched.control.rates import per_second, ratio, received_per_second

PS, WORKER = "/job:ps/task:0", "/job:worker/task:0"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "got none"),
        (["localhost"], "'localhost' is no address"),
        ([":1"], "':1' is no address"),
        (["host:port"], "'host:port' is no address"),
        (["host:70000"], "'host:70000' is no address"),
        (["--token", "a b", "host:1"], "the token is empty or has characters"),
        (["--interval", "0", "host:1"], "--interval"),
    ],
    ids=repr,
)
def test_each_mistake_is_one_sentence(top, arguments, words):
    code, printed = top(*arguments)
    assert code == 2 and words in printed and len(printed.strip().splitlines()) == 1, printed


def test_on_a_terminal_the_table_is_drawn_again_until_it_is_interrupted():
    reads, writes = pty.openpty()
    command = [sys.executable, "-m", "tfsched.cli", "top", "--interval=0.1", f"127.0.0.1:{free_port()}"]
    process = subprocess.Popen(command, stdin=writes, stdout=writes, stderr=writes, start_new_session=True)
    os.close(writes)
    drawn, deadline_s = b"", time.monotonic() + 60
    while drawn.count(b"no answer") < 3 and time.monotonic() < deadline_s:
        if select.select([reads], [], [], 1)[0]:
            drawn += os.read(reads, 1 << 16)
    process.send_signal(signal.SIGINT)
    try:
        assert process.wait(20) == 0
    finally:
        process.kill()
        os.close(reads)
    assert drawn.count(b"no answer") >= 3


@given(st.integers(0, 10**15), st.integers(0, 10**12), st.floats(0.01, 1e4))
def test_a_rate_is_a_difference(before, grown, passed_s):
    first = Answer("a", identity=("h", 1), time_s=5.0, numbers={"bytes": before, "other": 3})
    second = Answer("a", identity=("h", 1), time_s=5.0 + passed_s, numbers={"bytes": before + grown, "other": 4})
    assert per_second(first, second, "bytes", "other") == pytest.approx((grown + 1) / passed_s, rel=1e-6)
    assert per_second(None, second, "bytes") is None
    assert per_second(second, first, "bytes") is None  # it ran backwards
    assert per_second(first, Answer("a", identity=("h", 2), time_s=9.0, numbers={"bytes": 1}), "bytes") is None
    assert per_second(Answer("a", "gone"), second, "bytes") is None


def transfer(to, bytes, released_us):
    return types.SimpleNamespace(receiver=to, bytes=bytes, started_us=released_us - 10, released_us=released_us)


def test_what_a_task_receives_is_what_others_released_to_it():
    to = "/job:worker/replica:0/task:0"
    rows = [transfer(to, 7, 1_000_000), transfer(to, 100, 2_500_000), transfer("/job:other", 9, 3_000_000)]
    ps = Answer("a", tasks=(PS,), unix_us=4_000_000, transfers=[*rows, transfer(to, 50, -1)])
    worker = Answer("b", tasks=(WORKER,), unix_us=1, transfers=[])
    assert received_per_second([WORKER], [ps, worker], 2.0, 1000) == 50.0
    assert received_per_second([PS], [ps, worker], 2.0, 1000) == 0.0
    # Only what begins with the first transfer that is known counts: 100 bytes in 1.5 s.
    assert received_per_second([WORKER], [Answer("a", tasks=(PS,), unix_us=4_000_000, transfers=rows[1:])], 2.0, 2) == (
        pytest.approx(100 / 1.50001)
    )
    assert received_per_second([WORKER], [worker, Answer("c", "gone")], 2.0, 1000) is None
    assert received_per_second([], [ps], 2.0, 1000) is None


def test_what_configure_has_set_wins():
    def answer(policy, credit_bytes, **parts):
        return Answer("a", texts={"policy": policy}, numbers={"credit_bytes": credit_bytes}, parts=parts)

    told = {"policy": "p3", "credit_bytes": 5.0}
    assert in_force(answer("graph", -1)) == ("graph", None)
    assert in_force(answer("graph", -1, graphs=told)) == ("p3", 5)
    assert in_force(answer("fifo", -1, graphs=told)) == ("fifo", 5)
    assert in_force(answer("graph", 0, functions=told)) == ("p3", 0)
    server = answer("graph", -1)
    server.numbers["credit_in_force_bytes"] = 7
    assert in_force(server) == ("graph", 7)  # it knows no options, but what it has sent under
    server.numbers["credit_in_force_bytes"] = -1
    assert in_force(server) == ("graph", None)


def test_a_mean_is_what_one_counter_grew_for_each_of_another():
    first = Answer("a", identity=("h", 1), time_s=5.0, numbers={"steps": 3, "step_us_total": 900})
    second = Answer("a", identity=("h", 1), time_s=6.0, numbers={"steps": 5, "step_us_total": 1500})
    assert ratio(first, second, "step_us_total", "steps") == pytest.approx(300)
    assert ratio(first, first, "step_us_total", "steps") is None  # no step has ended
    assert ratio(None, second, "step_us_total", "steps") is None


def test_credit_in_use_stands_before_the_credit():
    assert used(0.5, 1_000_000) == "500.0 kB / 1.0 MB"
    assert used(None, 0) == "- / none"
    assert used(1e-3, None) == "1.0 kB / graph's"


def test_a_tuner_is_one_line():
    tuner = {"state": "searching", "samples": 7.0, "in_force": "fifo with whole tensors", "best": "p3 with whole tensors"}
    assert said(tuner) == "searching, 7 samples; in force: fifo with whole tensors; best: p3 with whole tensors"
    assert said({"state": "searching"}) == "searching, 0 samples"
