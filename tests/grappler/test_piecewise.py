"""Which updates of the background function are made chunk by chunk, and from what."""

import pytest
import tensorflow as tf
from test_barrier import WORKER2, Step

import tfsched
from tfsched._options import Options

tf1 = tf.compat.v1
CHUNKS = Options(barrier=False, policy="bytescheduler", partition_bytes=4096)


@pytest.fixture(autouse=True, scope="module")
def _library():
    tfsched.load()


def of(body, op):
    return [node for node in body.values() if node.op == op]


def cut(step, *fetches, options=CHUNKS):
    """The background function's nodes."""
    _, report, body = step.cut(step.loss, *fetches, options=options)
    assert report.kept == {}
    names = {name.partition(":")[0].lstrip("^") for node in body.values() for name in node.input}
    assert names <= set(body) | {"tfsched_token"}  # nothing refers to what is gone
    return body


@pytest.mark.parametrize("optimizer", ["GradientDescent", "Momentum", "Adam", "RMSProp", "Adagrad", "Adadelta", "Ftrl"])
def test_each_chunk_updates_its_part_and_goes_on(optimizer):
    step = Step(side=64)  # 16 KiB a variable: four chunks
    rate = getattr(tf1.train, optimizer + "Optimizer")
    made = rate(0.1, 0.9) if optimizer == "Momentum" else rate(0.1)
    body = cut(step, step.apply(optimizer=made))
    pieces, whole = of(body, "TfschedUpdatePiece"), of(body, "TfschedUpdateFromPieces")
    assert len(pieces) == 8 and len(whole) == 2
    assert not of(body, "TfschedUpdate") and not of(body, "TfschedReadAhead")
    # What is left of cutting and merging: gradients at the worker's side, values at the other end.
    assert len(of(body, "TfschedSplit")) == len(of(body, "TfschedMerge")) == 2
    for node in whole:
        mine = [piece for piece in pieces if piece.attr["update"].s == node.attr["update"].s]
        assert {"^" + piece.name for piece in mine} <= set(node.input)
        assert sorted(piece.attr["piece"].i for piece in mine) == [0, 1, 2, 3]
        assert all(piece.attr["node"].s == node.attr["node"].s and piece.device == node.device for piece in mine)
    for notify in of(body, "TfschedNotify"):
        assert any(text.startswith("^") and body[text[1:]].op == "TfschedUpdateFromPieces" for text in notify.input)


def test_gradients_of_several_workers_are_averaged_chunk_by_chunk():
    step = Step(side=64)
    _, second = step.tower(WORKER2)
    averaged = []
    for variable, *gradients in zip(step.variables, step.gradients, second, strict=True):
        with tf.device(variable.device):
            averaged.append(tf.add_n(gradients) / 2)
    body = cut(step, step.apply(averaged))
    pieces = of(body, "TfschedUpdatePiece")
    assert len(pieces) == 8 and all(piece.attr["R"].i == 2 for piece in pieces)  # both workers read both variables
    assert len(of(body, "AddN")) == len(of(body, "RealDiv")) == 8
    receivers = {receiver for piece in pieces for receiver in piece.attr["receivers"].list.s}
    assert len(receivers) == 2
    ports = {name.rpartition(":")[2] for merge in of(body, "TfschedMerge") for name in merge.input if ":" in name}
    assert ports >= {"0", "1"}  # each worker merges the values made for it


@pytest.mark.parametrize(
    "side,options",
    [
        (63, CHUNKS),  # the last elements would be rounded on their own
        (64, Options(barrier=False, policy="bytescheduler")),  # nothing is cut
        (64, Options(barrier=False, policy="tictac", partition_bytes=4096)),  # pushes are not ordered, so not cut
        (32, CHUNKS),  # one chunk, and nothing is sent ahead
    ],
)
def test_others_are_updated_whole(side, options):
    step = Step(side=side)
    body = cut(step, step.apply(), options=options)
    assert not of(body, "TfschedUpdatePiece")
    assert len([node for node in body.values() if node.op.startswith("ResourceApply")]) == 2


def test_what_needs_all_elements_is_made_of_whole_gradients():
    step = Step(side=64)
    clipped = []
    for variable, gradient in zip(step.variables, step.gradients, strict=True):
        with tf.device(variable.device):
            clipped.append(tf.clip_by_norm(gradient, 1.0))
    body = cut(step, step.apply(clipped))
    assert not of(body, "TfschedUpdatePiece")
