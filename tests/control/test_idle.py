"""What a watch sees of a process that computes, rests, or was forked from one that is watched."""

import os
import threading
import time

import pytest

from tfsched.control import idle
from tfsched.control.client import Answer
from tfsched.control.rates import idle_share


@pytest.fixture
def watched():
    """A watch, and the clocks from its beginning on: (seconds that passed, processor time)."""
    began_s, used_s = time.monotonic(), time.process_time()
    watch = idle.Watch(0.005)
    yield watch, lambda: (time.monotonic() - began_s, time.process_time() - used_s)
    watch.close()


def test_what_is_neither_rest_nor_work_of_one_thread_is_idle(watched):
    watch, clocks = watched
    for _ in range(5):
        time.sleep(0.04)
        end_s = time.process_time() + 0.04
        while time.process_time() < end_s:
            pass
    passed_s, used_s = clocks()
    watch.close()
    assert watch.seen.seconds == pytest.approx(passed_s, abs=0.05)
    # One thread computes at a time, so each look finds less than one processor in use: nothing is cut off.
    assert watch.seen.idle_s == pytest.approx(passed_s - used_s, abs=0.06) and used_s >= 0.2


def test_a_closed_watch_leaves_no_thread_and_looks_no_more(watched):
    watch, _ = watched
    time.sleep(0.03)
    watch.close()
    seen = watch.seen
    assert seen.seconds > 0 and watch._thread not in threading.enumerate()
    time.sleep(0.02)
    assert watch.seen == seen


def test_a_forked_child_is_watched_when_it_asks_for_that(monkeypatch):
    monkeypatch.setattr(idle, "_WATCHES", {})
    assert idle.seen() == idle.Seen()
    idle.begin()
    idle.begin()
    (watch,) = idle._WATCHES.values()
    try:
        child = os.fork()
        if child == 0:
            os._exit(idle.seen() != idle.Seen())
        assert os.waitpid(child, 0)[1] == 0
    finally:
        watch.close()


def test_a_share_is_told_of_one_process_only():
    first = Answer("a", identity=("h", 1), watched_s=10.0, idle_s=4.0)
    second = Answer("a", identity=("h", 1), watched_s=12.0, idle_s=4.5)
    assert idle_share(first, second) == 0.25
    assert idle_share(None, second) is None and idle_share(first, first) is None
    assert idle_share(first, Answer("a", identity=("h", 2), watched_s=12.0)) is None
    assert idle_share(first, Answer("a", "gone")) is None
