"""What a drain says of errors, and what it leaves in TensorFlow's context."""

import gc

import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import tfsched
from tfsched.eager import outstanding


@pytest.mark.parametrize(
    ("text", "late"),
    [
        ("tfsched: after 30000 ms 1 background update(s) of this training are still outstanding", True),
        ("no answer", True),
        ("tfsched: the background update of an earlier step failed: Deadline Exceeded", False),
    ],
)
def test_an_update_that_failed_for_a_time_limit_of_its_own_is_no_drain_that_took_too_long(text, late):
    assert outstanding.is_late(tf.errors.DeadlineExceededError(None, None, text)) == late
    assert not outstanding.is_late(tf.errors.AbortedError(None, None, text)) and not outstanding.is_late(None)


def test_a_task_that_is_forgotten_keeps_the_functions_that_drained_it():
    """TensorFlow would take them away from tasks that have never known them, which is an error of whatever runs then."""
    tfsched.load()
    task = outstanding.own_task()
    drainer = outstanding._drainer(task, "someone", 5.0, False)
    assert drainer()["background_outstanding"] == 0
    name = drainer._function.name
    del drainer
    outstanding.forget(task)
    gc.collect()
    assert context.context().has_function(name)
