"""What a coordinator does with a closure of which nobody knows whether its updates are applied."""

import types

import pytest

import tfsched
from tfsched.eager import confirming, numbering

TASK = "/job:localhost/replica:0/task:0"


@pytest.fixture(autouse=True)
def _forgotten():
    tfsched.load()
    numbering.forget(TASK)
    yield
    numbering.forget(TASK)


def numbered(confirmer):
    """A closure that has called a function with updates in the background, on this process."""
    closure = types.SimpleNamespace()
    confirming.Running(confirmer, closure).before_call("function", "client")
    return closure


def test_no_closure_is_numbered_in_the_epoch_of_one_that_was_put_back():
    """Its worker goes on, and it waits behind all closures in the queue. Of an epoch parameter servers remember 32 runs."""
    queue = []
    cluster = types.SimpleNamespace(closure_queue=types.SimpleNamespace(put_back=queue.append))
    confirmer = confirming.Confirmer(types.SimpleNamespace(_cluster=cluster, device_name=TASK))
    confirmer.numbering._launches["function"] = True  # as it is known after the first calls
    first, second = numbered(confirmer), numbered(confirmer)
    epoch, index = first._tfsched_number
    assert second._tfsched_number == (epoch, index + 1)
    confirmer._give_back(first)
    assert queue == [first]
    later = [numbered(confirmer) for _ in range(40)]
    assert all(closure._tfsched_number[0] != epoch for closure in later)
    # At its second attempt it bears the number of the first.
    confirming.Running(confirmer, first).before_call("function", "client")
    assert first._tfsched_number == (epoch, index)
