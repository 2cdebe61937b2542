"""Scheduled all-reduces: which packs are exchanged, in which order, and that both ways give the step what it had."""

import numpy as np
import pytest
import tensorflow as tf
from graphs import WORKER, copy
from tensorflow.core.framework import types_pb2

import tfsched
from tfsched._options import Options
from tfsched._rules import SMALL_BYTES, bundle_bytes
from tfsched.grappler.rewrite import rewrite

TASK = WORKER.rpartition("/device")[0]
LARGE = SMALL_BYTES // 4
tf1 = tf.compat.v1


@pytest.fixture(autouse=True, scope="module")
def _library():
    tfsched.load()


class Step:
    """A step as MultiWorkerMirroredStrategy builds it: variables read in order, gradients packed from the last one on.

    Args:
      packs: per pack the sizes of its gradients.
      attrs: of the all-reduces.
      device: where everything is.
    """

    def __init__(self, packs=((LARGE, 10, 3 * LARGE, 20),), device=WORKER, workers=2, **attrs):
        attrs = {"merge_op": "Add", "final_op": "Id", "T": "float32", **attrs}
        dtype = tf.as_dtype(attrs.pop("T"))
        sizes = [size for pack in packs for size in pack]
        with tf.Graph().as_default() as graph, tf.device(device):
            handles = [
                tf.raw_ops.VarHandleOp(dtype=dtype, shape=[size], shared_name=f"v{number}")
                for number, size in enumerate(sizes)
            ]
            reads = {}
            hidden = tf1.placeholder_with_default(tf.ones([], dtype), [], "input")
            for number in reversed(range(len(sizes))):  # the last of the last pack is the first layer
                reads[number] = tf.raw_ops.ReadVariableOp(resource=handles[number], dtype=dtype, name=f"read{number}")
                hidden = tf.identity(hidden * reads[number][0], name=f"layer{number}")
            gradients = [hidden * reads[number] for number in range(len(sizes))]
            begin, before, wholes = 0, [], []
            for number, pack in enumerate(packs):
                mine = gradients[begin : begin + len(pack)]
                wholes.append(tf.concat(mine, 0, name=f"pack{number}") if len(mine) > 1 else mine[0])
                begin += len(pack)
            keys = [
                (
                    tf.constant(workers, name=f"size{number}"),
                    tf.constant(1, name=f"key{number}"),
                    tf1.placeholder_with_default(100 + number, [], f"instance{number}"),
                )
                for number in range(len(packs))
            ]
            begin = 0
            for number, pack in enumerate(packs):
                with tf.control_dependencies(before):
                    before = [
                        self._reduce(
                            number, wholes[number], keys[number], pack, attrs, dtype, handles[begin : begin + len(pack)]
                        )
                    ]
                begin += len(pack)
            with tf.control_dependencies(before):
                tf.no_op(name="end")
            self.graph = graph.as_graph_def()
        self.fetches = [f"update{number}" for number in range(len(packs))] + ["end"]

    @staticmethod
    def _reduce(number, whole, keys, sizes, attrs, dtype, handles):
        reduced = tf.raw_ops.CollectiveReduceV2(
            input=whole,
            group_size=keys[0],
            group_key=keys[1],
            instance_key=keys[2],
            ordering_token=[],
            name=f"reduce{number}",
            **attrs,
        )
        parts = tf.split(reduced, sizes, name=f"split{number}") if len(sizes) > 1 else [reduced]
        updates = [
            tf.raw_ops.AssignSubVariableOp(
                resource=handle, value=part * tf.cast(0.5, dtype), name=f"apply{number}_{position}"
            )
            for position, (handle, part) in enumerate(zip(handles, parts, strict=True))
        ]
        with tf.control_dependencies(updates):
            tf.no_op(name=f"update{number}")
        return reduced.op

    def rewritten(self, options=None, **arguments):
        arguments = {"local": (TASK,), **arguments}
        return rewrite(copy(self.graph), options or Options(), self.fetches, **arguments)


def by_op(graph, op):
    return [node for node in graph.node if node.op == op]


def test_large_tensors_go_alone_and_small_ones_together():
    graph, report = Step().rewritten()
    reduces = by_op(graph, "TfschedAllReduce")
    assert (report.exchanged.packs, report.exchanged.tensors, report.exchanged.kept) == (1, 3, {})
    assert sorted(node.attr["elements"].i for node in reduces) == [30, LARGE, 3 * LARGE]
    assert len(by_op(graph, "TfschedAgree")) == 1
    assert len(by_op(graph, "Switch")) == len(by_op(graph, "Merge")) == 3


def test_what_the_next_step_reads_first_is_most_urgent():
    graph, _ = Step(packs=((LARGE, LARGE + 1, LARGE + 2), (LARGE + 3, LARGE + 4))).rewritten()
    ranks = {node.attr["elements"].i - LARGE: node.attr["rank"].i for node in by_op(graph, "TfschedAllReduce")}
    assert ranks == {4: 0, 3: 1, 2: 2, 1: 3, 0: 4}
    assert {node.attr["count"].i for node in by_op(graph, "TfschedAllReduce")} == {5}


def test_a_bundle_is_as_urgent_as_its_most_urgent_tensor():
    graph, _ = Step(packs=((8, LARGE, 16),)).rewritten()
    ranks = {node.attr["elements"].i: node.attr["rank"].i for node in by_op(graph, "TfschedAllReduce")}
    assert ranks == {24: 0, LARGE: 1}


def test_bundles_have_a_largest_size():
    count, size = 120, 2_500
    for workers, bundles, most in ((2, 5, 250_000), (3, 2, 750_000), (4, 2, 1_000_000), (6, 1, 1_200_000)):
        graph, report = Step(packs=((size,) * count,), workers=workers).rewritten()
        sizes = [node.attr["elements"].i * 4 for node in by_op(graph, "TfschedAllReduce")]
        assert sum(sizes) == count * size * 4 and report.exchanged.tensors == bundles
        assert max(sizes) == min(bundle_bytes(workers), sum(sizes)) == most


def test_names_and_order_of_everything_else_stay():
    step = Step(packs=((LARGE, 8), (LARGE, 9)))
    graph, _ = step.rewritten()
    nodes = {node.name: node for node in graph.node}
    assert {node.name for node in step.graph.node} <= set(nodes)
    assert nodes["reduce0"].op == nodes["reduce1"].op == "NoOp"
    assert all(text.startswith("^") and nodes[text[1:]].op == "Merge" for text in nodes["reduce0"].input)
    assert "^reduce1" in nodes["end"].input
    # Stock's run one after another; ours do not.
    assert "^reduce0" in nodes["reduce1/stock"].input
    assert not [text for node in by_op(graph, "TfschedAllReduce") for text in node.input if text.startswith("^")]


def test_twice_is_once():
    step = Step(packs=((LARGE, 8), (LARGE,)))
    once, _ = step.rewritten()
    again, report = rewrite(copy(once), Options(), step.fetches, local=(TASK,))
    assert again is None and report.exchanged.packs == 0


def test_the_order_none_leaves_all_as_it_is():
    assert Step().rewritten(Options(ordering="none"))[0] is None


def test_the_plan_says_what_has_to_be_the_same():
    def plan(step, options=None):
        (node,) = by_op(step.rewritten(options)[0], "TfschedAgree")
        return node.attr["plan"].s.decode()

    assert plan(Step()) == plan(Step())
    assert "partition_bytes=auto" in plan(Step()) and "policy=bytescheduler" in plan(Step())
    assert "partition_bytes=65536" in plan(Step(), Options(partition_bytes=65536))
    others = [Step(((LARGE, 10, 3 * LARGE, 21),)), Step(((10, LARGE, 3 * LARGE, 20),)), Step(T="half"), Step(final_op="Div")]
    assert len({plan(step) for step in [Step(), *others]}) == 5


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda: Step(device=WORKER.replace("CPU", "GPU")), "on an accelerator"),
        (lambda: Step(packs=((5,),)), "of few elements"),
        (lambda: Step(timeout_seconds=5.0), "with a time limit"),
    ],
)
def test_what_stays_with_stock(step, reason):
    graph, report = step().rewritten()
    assert graph is None and report.exchanged.kept == {reason: 1}


def test_other_tasks_all_reduces_are_theirs():
    graph, report = Step().rewritten(local=())
    assert graph is None and report.exchanged.kept == {"on a task without tfsched": 1}


def test_a_pack_of_unknown_sizes_stays():
    step = Step()
    (part,) = by_op(step.graph, "SplitV")
    sizes = next(node for node in step.graph.node if node.name == part.input[1])
    sizes.op = "Placeholder"
    sizes.attr.clear()
    sizes.attr["dtype"].type = types_pb2.DT_INT32
    assert step.rewritten()[1].exchanged.kept == {"of unknown sizes": 1}


def _wired(graph, agreed):
    """The graph with the decision made, and reductions that give back twice their input."""
    for node in graph.node:
        if node.op == "TfschedAgree":
            node.op = "Const"
            del node.input[:]
            node.attr.clear()
            node.attr["dtype"].type = types_pb2.DT_BOOL
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(agreed))
        elif node.op in ("TfschedAllReduce", "CollectiveReduceV2"):
            dtype, data = node.attr["T"].type, node.input[0]
            control = [text for text in node.input if text.startswith("^")]
            node.op = "AddV2"
            del node.input[:]
            node.input.extend([data, data, *control])
            node.attr.clear()
            node.attr["T"].type = dtype
    return graph


@pytest.mark.parametrize("agreed", [True, False])
@pytest.mark.parametrize(
    "packs", [((LARGE, 10, 20),), ((LARGE,), (12, 13, 14)), ((7, 8), (100,), (LARGE, 3)), ((7, LARGE, 8, LARGE + 1, 9),)]
)
def test_both_branches_give_each_use_its_own_tensor(packs, agreed):
    sizes = [size for pack in packs for size in pack]

    def after(graph_def):
        with tf.Graph().as_default() as graph, tf1.Session(config=tf1.ConfigProto(allow_soft_placement=True)) as session:
            for node in graph_def.node:
                node.device = ""
            tf1.import_graph_def(graph_def, name="")
            with graph.as_default():
                handles = [
                    tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[s], shared_name=f"v{n}") for n, s in enumerate(sizes)
                ]
                initial = [np.arange(size, dtype=np.float32) / size + number for number, size in enumerate(sizes)]
                session.run(
                    [tf.raw_ops.AssignVariableOp(resource=h, value=v) for h, v in zip(handles, initial, strict=True)]
                )
                session.run([f"update{number}" for number in range(len(packs))] + ["end"])
                return session.run([tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32) for handle in handles])

    step = Step(packs)
    changed, report = step.rewritten()
    assert report.exchanged.packs == len(packs)
    wanted, got = after(_wired(copy(step.graph), agreed)), after(_wired(changed, agreed))
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(one, other)
