"""Calls on other tasks, and updates of the cluster between them."""

import threading
import time

import pytest

from tfsched.eager import updating

LIMIT_S = 20


class Context:
    """Answers of ``check_alive``, one after the other; the last one stays."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = 0

    def check_alive(self, _):
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def gate(monkeypatch):
    gate = updating.Gate()
    monkeypatch.setattr(updating, "gate", gate)
    return gate


def in_thread(function):
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_a_call_that_would_begin_within_an_update_begins_after_it(gate):
    order = []
    inside, leave = threading.Event(), threading.Event()

    def update():
        with gate.closed():
            inside.set()
            assert leave.wait(LIMIT_S)
            order.append("updated")

    def call():
        gate.begin()
        order.append("begun")
        gate.end()

    updater = in_thread(update)
    assert inside.wait(LIMIT_S)
    caller = in_thread(call)
    caller.join(0.2)
    assert caller.is_alive()
    leave.set()
    for thread in (updater, caller):
        thread.join(LIMIT_S)
    assert order == ["updated", "begun"]


def test_an_update_waits_for_a_call_that_has_just_begun_until_it_ends(gate):
    order = []
    begun, leave = threading.Event(), threading.Event()

    def call():
        gate.begin()
        begun.set()
        assert leave.wait(LIMIT_S)
        order.append("ended")
        gate.end()

    caller = in_thread(call)
    assert begun.wait(LIMIT_S)
    threading.Timer(0.2, leave.set).start()
    with gate.closed():
        order.append("update")
    caller.join(LIMIT_S)
    assert order == ["ended", "update"]


def test_no_update_waits_for_a_call_that_lasts(gate, monkeypatch):
    monkeypatch.setattr(updating, "_COPIED_S", 0.2)
    done = threading.Event()

    def call():
        gate.begin()
        begun.set()
        done.wait(LIMIT_S)
        gate.end()

    begun = threading.Event()
    caller = in_thread(call)
    assert begun.wait(LIMIT_S)
    for _ in range(2):  # the second time it has lasted for long enough when the update comes
        with gate.closed():
            assert caller.is_alive()
    done.set()
    caller.join(LIMIT_S)


def test_calls_begin_all_the_same_if_an_update_does_not_end(gate, monkeypatch, caplog):
    """The first one waits for as long as an update may last, the next ones for nothing, and one line says so."""
    monkeypatch.setattr(updating, "_PATIENCE_S", 0.2)
    waits = []
    wait = gate._changed.wait
    monkeypatch.setattr(gate._changed, "wait", lambda limit_s: waits.append(limit_s) or wait(limit_s))
    counts = []
    with caplog.at_level("WARNING", logger="tfsched"), gate.closed():
        for _ in range(3):
            caller = in_thread(gate.begin)
            caller.join(LIMIT_S)
            assert not caller.is_alive()
            counts.append(len(waits))
    assert counts[0] > 0 and set(counts) == {counts[0]}
    assert sum("still being updated" in record.message for record in caplog.records) == 1


def test_an_update_that_fails_lets_calls_begin(gate):
    with pytest.raises(ValueError, match="told"), gate.closed():
        raise ValueError("told")
    caller = in_thread(gate.begin)
    caller.join(LIMIT_S)
    assert not caller.is_alive()


@pytest.mark.parametrize(
    ("answers", "asked", "held_off"),
    [
        ([True], 2, True),
        ([False, True], 3, True),  # one of two tasks is asked again
        ([ValueError("unknown")], 1, False),
    ],
)
def test_calls_are_held_off_once_every_task_answers(gate, monkeypatch, answers, asked, held_off):
    monkeypatch.setattr(updating, "_FIRST_LOOK_S", 0.01)
    context = Context(*answers)
    gate.begin()
    gate.end()
    with updating.alone(context, ["/job:ps/replica:0/task:0", "/job:worker/replica:0/task:0"]):
        caller = in_thread(gate.begin)
        caller.join(0.2)
        assert caller.is_alive() == held_off
    caller.join(LIMIT_S)
    assert not caller.is_alive()
    assert context.asked == asked


def test_a_task_that_does_not_come_back_is_not_waited_for_without_end(gate, monkeypatch):
    monkeypatch.setattr(updating, "_AWAY_S", 0.1)
    gate.begin()
    gate.end()
    begin_s = time.monotonic()
    with updating.alone(Context(False), ["/job:worker/replica:0/task:0"]):
        assert time.monotonic() - begin_s >= 0.1


def test_a_process_that_has_called_nobody_asks_nobody(gate):
    context = Context(True)
    with updating.alone(context, ["/job:worker/replica:0/task:0"]):
        pass
    assert context.asked == 0
