"""The models' sizes and the shape of their graphs."""

import collections

import pytest
import tensorflow as tf

from tfsched.bench import MODELS, BenchError, graphs
from tfsched.bench.models import PHASES, find_model


def test_every_model_of_the_documentation_exists():
    assert set(MODELS) >= {
        *("seq32", "par32", "mlp24", "alexnet"),
        *("vgg16", "inception_v3", "resnet50", "resnet152", "transformer"),
    }


def test_a_perceptron_of_any_size():
    built = graphs.build_step(find_model("mlp5x20"), "train", 2, ps=2, workers=1)
    assert built.variable_bytes == 5 * 20 * 20 * 4
    assert built.bytes_by_device() == {"/job:ps/task:0": 3 * 1600, "/job:ps/task:1": 2 * 1600}
    for name in ("mlp0x5", "mlp5x0", "mlp5", "mlp5x5x5"):
        with pytest.raises(BenchError, match="or mlpLxW"):
            find_model(name)


def test_unknown_model():
    with pytest.raises(BenchError, match="'lenet' is unknown: choose from toy, seq32"):
        find_model("lenet")


@pytest.mark.parametrize(
    ("name", "size_bytes"),
    [("seq32", 98e6), ("par32", 98e6), ("mlp24", 96e6), ("alexnet", 249.5e6), ("transformer", 240.4e6)],
)
def test_sizes(name, size_bytes):
    built = graphs.build_step(find_model(name), "forward", 2, ps=1, workers=1)
    assert built.variable_bytes == pytest.approx(size_bytes, rel=0.01)


def sources(operation: tf.Operation, seen: set[tf.Operation]) -> set[tf.Operation]:
    waiting = [operation]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting += [tensor.op for tensor in current.inputs]
    return seen


def test_each_tower_has_its_own_reads_of_variables_on_all_parameter_servers():
    built = graphs.build_step(find_model("toy"), "forward", 2, ps=2, workers=2)
    reads = []
    for loss in built.fetches["step"]["losses"]:
        found = sources(loss.op, set())
        reads.append({op.name for op in found if op.type == "ReadVariableOp"})
        holders = collections.Counter(op.device for op in found if op.type == "VarHandleOp")
        assert holders == {"/job:ps/task:0": 2, "/job:ps/task:1": 1}
    assert len(reads[0]) == len(reads[1]) == 3
    assert not reads[0] & reads[1]


def test_seq32_is_a_chain_and_par32_is_not():
    def depth(name: str) -> int:
        built = graphs.build_step(find_model(name), "forward", 2, ps=1, workers=1)
        longest: dict[tf.Operation, int] = {}
        for op in built.graph.get_operations():  # in an order that puts inputs first
            before = max((longest[tensor.op] for tensor in op.inputs), default=0)
            longest[op] = before + (op.type == "MatMul")
        return max(longest.values())

    assert depth("seq32") == 32
    assert depth("par32") == 1


@pytest.mark.parametrize("phase", PHASES)
def test_computing_alone_names_no_parameter_server(phase):
    built = graphs.build_compute_alone(find_model("toy"), phase, None, workers=2)
    devices = {op.device for op in built.graph.get_operations()}
    assert devices <= {"", "/job:worker/task:0", "/job:worker/task:1"}
    assert len(built.fetches["step"]["losses"]) == 2


def test_communicating_alone_moves_each_variable_to_and_from_each_worker():
    step = graphs.build_step(find_model("toy"), "train", 2, ps=2, workers=3)
    built = graphs.build_communication_alone(step.variables, workers=3)
    assert built.variable_bytes == step.variable_bytes
    identities = [op for op in built.graph.get_operations() if op.type == "Identity"]
    moved = collections.Counter((op.inputs[0].op.type, op.device) for op in identities if "Read" not in op.name)
    pulled = {device: n for (kind, device), n in moved.items() if kind == "ReadVariableOp"}
    pushed = {device: n for (kind, device), n in moved.items() if kind == "Fill"}
    assert pulled == {f"/job:worker/task:{index}": 3 for index in range(3)}
    assert pushed == {"/job:ps/task:0": 6, "/job:ps/task:1": 3}
