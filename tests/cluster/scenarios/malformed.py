"""Calls of every op of the library with inputs and attributes that no pass writes: whoever reaches a port can make them."""

import random
import sys
import threading

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import (
    attr_value_pb2,
    graph_pb2,
    node_def_pb2,
    op_def_pb2,
    resource_handle_pb2,
    types_pb2,
)
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.eager import cancellation, context, execute

v1 = tf.compat.v1
PREFIX = "Tfsched"
CALL_MS = 700  # ops that wait end with their step
HUGE = 2**63 - 1

_TYPES = [tf.float32, tf.float64, tf.int64, tf.string, tf.bool, tf.resource, tf.variant, tf.complex64]
_INTS = [0, 1, 2, 3, -1, -(2**31), 2**31 - 1, 2**31, 2**40, HUGE, -HUGE - 1]
_TEXTS = [b"", b"x", b"y", b"12", b"7 ", b"-3 text", b"99 text", b"0 ", b"no number", b"\x00\xff" * 40, b"x" * 9999, b"p3"]
_SHAPES = [[], [0], [1], [2], [2, 2], [0, 5], [0, HUGE], [2**40], [2**40, 2**40], [-1], [-7, 3], None]
_COUNTS = [0, 1, 1, 2, 3]
# Of 64 elements, so that they can be cut into chunks.
_VARIABLES = {"v": tf.float32, "w": tf.float32, "d": tf.float64, "s": tf.string}
_HANDLES = ["v"] * 6 + ["w", "d", "s", "never made", "a queue", "no handle", "two handles", "a matrix", "forged"]
_BACKGROUND = "malformed_background"


def definitions(task):
    """The ops of the loaded library, by name."""
    ops = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())).op
    return {op.name: op for op in ops if op.name.startswith(PREFIX)}


def names(task):
    """The names of the library's ops."""
    return sorted(definitions(task))


def _update(op, inputs, dtype=None):
    node = node_def_pb2.NodeDef(name="update", op=op, input=[f"input{number}" for number in range(inputs)])
    if dtype is not None:
        node.attr["T" if op.endswith("Descent") else "dtype"].type = dtype.as_datatype_enum
    return node.SerializeToString()


def _nested(depth):
    """An update that runs an update that runs an update ..."""
    text = _update("AssignVariableOp", 2, tf.float32)
    for _ in range(depth):
        node = node_def_pb2.NodeDef(name="update", op="TfschedUpdate", input=["input0", "input1"])
        node.attr["Targs"].list.type.extend([types_pb2.DT_RESOURCE, types_pb2.DT_FLOAT])
        node.attr["node"].s = text
        text = node.SerializeToString()
    return text


_GOOD_UPDATES = [
    _update("AssignVariableOp", 2, tf.float32),
    _update("AssignAddVariableOp", 2, tf.float32),
    _update("ResourceApplyGradientDescent", 3, tf.float32),
]
_UPDATES = [
    *_GOOD_UPDATES * 6,
    _update("ResourceApplyGradientDescent", 1, tf.float32),
    _update("ApplyGradientDescent", 3, tf.float32),
    _update("AssignVariableOp", 2),
    _update("AssignVariableOp", 2, tf.string),
    _update("DeleteSessionTensor", 1),
    _update("NoOp", 0),
    _update("NoSuchOp", 2),
    _nested(1),
    _nested(3000),
]


def _shape(proto, dims):
    if dims is None:
        proto.unknown_rank = True
        return
    proto.SetInParent()
    for size in dims:
        proto.dim.add(size=size)


def _attr(rng, attr, numbers):
    """A value of the attribute's type; mostly one that the definition allows."""
    value = attr_value_pb2.AttrValue()
    keep = rng.random() < 0.9
    if attr.type == "int":
        value.i = numbers[attr.name] if attr.name in numbers else rng.choice(_INTS[:4] * 4 + _INTS)
        if attr.has_minimum and keep:
            value.i = max(value.i, attr.minimum)
    elif attr.type == "string":
        value.s = rng.choice(_UPDATES) if attr.name == "node" and keep else rng.choice([b"x"] * 20 + _TEXTS)
        if attr.allowed_values.list.s and keep:
            value.s = rng.choice(list(attr.allowed_values.list.s))
    elif attr.type == "type":
        value.type = rng.choice([tf.float32] * 12 + _TYPES).as_datatype_enum
    elif attr.type == "shape":
        _shape(value.shape, rng.choice([[64]] * 20 + _SHAPES))
    elif attr.type == "bool":
        value.b = rng.random() < 0.5
    elif attr.type == "float":
        value.f = rng.choice([0.0, 1.0, -1.0, float("nan"), float("inf")])
    elif attr.type == "func":
        value.func.name = rng.choice([_BACKGROUND, _BACKGROUND, "no_such_function", ""])
    elif attr.type == "list(type)":
        assignment, descent = [tf.resource, tf.float32], [tf.resource, tf.float32, tf.float32]
        odd = [rng.choice(_TYPES) for _ in range(rng.choice(_COUNTS))]
        types = rng.choice([assignment, assignment, descent, [tf.resource], [tf.float32], odd])
        value.list.type.extend(dtype.as_datatype_enum for dtype in types)
    elif attr.type == "list(string)":
        value.list.s.extend(rng.choice([b"x", *_TEXTS]) for _ in range(rng.choice(_COUNTS)))
    elif attr.type == "list(int)":
        value.list.i.extend(rng.choice(_INTS) for _ in range(rng.choice(_COUNTS)))
    elif attr.type == "list(shape)":
        for _ in range(rng.choice(_COUNTS)):
            _shape(value.list.shape.add(), rng.choice([[64]] * 20 + _SHAPES))
    else:
        raise AssertionError(f"attribute {attr.name} has the type {attr.type}; add values of that type to this file")
    if rng.random() < 0.01:
        value.f = 1.5  # of another type altogether
    return value


def _array(rng, dtype):
    """A value for an input that is no resource."""
    if dtype == tf.int64:
        odd = [np.zeros(shape, np.int64) for shape in ([0], [2], [1, 1], [0, 5], [2, 2])]
        orders = [np.array([token, 1, 1, 1]) for token in (1, 0, -1)]
        return rng.choice([np.array(number) for number in [1] * 20 + _INTS] + odd + orders + [np.array([5, 1, 2])])
    if dtype == tf.string:
        odd = [np.array([], object), np.array([b"7 a", b"b"], object), np.array([[b"7 a"]], object)]
        return rng.choice([np.array(text, object) for text in [b""] * 8 + _TEXTS] + odd)
    shapes = [[64]] * 8 + [[32]] * 8 + [[], [0], [1], [2], [2, 2], [0, 1], [0, 5], [0, 2**40], [65]]
    return np.zeros(rng.choice(shapes), dtype.as_numpy_dtype)


def draw(seed, definition, number):
    """One call: the attributes, and for each input its type and value (a handle's, one of ``_HANDLES``)."""
    rng = random.Random(f"{seed} {definition.name} {number}")
    args = [*definition.input_arg, *definition.output_arg]
    numbers = {arg.number_attr: rng.choice(_COUNTS) for arg in args if arg.number_attr}
    attrs = {attr.name: _attr(rng, attr, numbers) for attr in definition.attr if rng.random() < 0.99}
    if "Targs" in attrs and "node" in attrs and rng.random() < 0.6:  # an update that could be run
        good = rng.randrange(3)
        attrs["node"].s = _GOOD_UPDATES[good]
        types = [types_pb2.DT_RESOURCE] + [types_pb2.DT_FLOAT] * (2 if good == 2 else 1)
        if definition.name == "TfschedUpdateFromPieces":
            types.pop()
        attrs["Targs"].list.type[:] = types
        for name, chosen in (("gradient", len(types)), ("piece", rng.randrange(2)), ("pieces", 2)):
            if name in attrs:
                attrs[name].i = chosen
        if "gradient" in attrs and definition.name != "TfschedUpdateFromPieces":
            attrs["gradient"].i -= 1
        if "R" in attrs:
            for name, kind in (("keys", "s"), ("transfers", "s"), ("receivers", "s"), ("ranks", "i"), ("counts", "i")):
                if name in attrs:
                    getattr(attrs[name].list, kind)[:] = [b"x" if kind == "s" else 1] * attrs["R"].i
    types = []
    for arg in definition.input_arg:
        if arg.type_list_attr:
            types.extend(attrs[arg.type_list_attr].list.type if arg.type_list_attr in attrs else [])
            continue
        kind = arg.type or (attrs[arg.type_attr].type if arg.type_attr in attrs else 0)
        types.extend([kind] * (numbers[arg.number_attr] if arg.number_attr else 1))
    inputs = []
    for kind in types:
        dtype = tf.dtypes.as_dtype(kind or types_pb2.DT_FLOAT)
        known = dtype in (tf.resource, tf.variant)
        inputs.append((dtype, rng.choice(_HANDLES) if known else _array(rng, dtype)))
    return attrs, inputs


def _handle(what):
    """A tensor of handles that are what ``what`` says."""
    if what == "a queue":
        return tf.raw_ops.FIFOQueueV2(component_types=[tf.int32], shared_name="queue")
    of = {"a matrix": "v", "two handles": "v", "no handle": "v"}.get(what, what)
    one = tf.raw_ops.VarHandleOp(dtype=_VARIABLES.get(of, tf.float32), shape=[64], shared_name=of, container="")
    if what == "a matrix":
        return tf.reshape(one, [1, 1])
    if what == "no handle":
        return tf.fill([0], one)
    return tf.stack([one, one]) if what == "two handles" else one


def _forged(graph, name):
    node = graph.node.add(name=name, op="Const")
    node.attr["dtype"].type = types_pb2.DT_RESOURCE
    tensor = node.attr["value"].tensor
    tensor.dtype = types_pb2.DT_RESOURCE
    tensor.tensor_shape.SetInParent()
    tensor.resource_handle_val.append(resource_handle_pb2.ResourceHandleProto(device="/nobody", name="n", hash_code=7))


def _in_session(task, definition, attrs, inputs):
    """Runs the call in a session, on values whose shapes nobody has seen before the kernel."""
    proto, feeds, handles = graph_pb2.GraphDef(), {}, {}
    function = proto.library.function.add()
    function.signature.name = _BACKGROUND
    function.signature.input_arg.add(name="token", type=types_pb2.DT_INT64)
    call = node_def_pb2.NodeDef(name="call", op=definition.name)
    with tf.Graph().as_default() as graph:
        for number, (dtype, value) in enumerate(inputs):
            call.input.append(f"input{number}")
            if dtype == tf.variant:
                handles[call.input[-1]] = tf.raw_ops.EmptyTensorList(
                    element_shape=-1, max_num_elements=1, element_dtype=tf.float32
                )
            elif dtype == tf.resource and value != "forged":
                handles[call.input[-1]] = _handle(value)
            elif dtype == tf.resource:
                _forged(proto, call.input[-1])
            else:
                node = proto.node.add(name=call.input[-1], op="Placeholder")
                node.attr["dtype"].type = dtype.as_datatype_enum
                node.attr["shape"].shape.unknown_rank = True
                feeds[f"{call.input[-1]}:0"] = value
        for name, attr in attrs.items():
            call.attr[name].CopyFrom(attr)
        proto.node.append(call)
        tf.import_graph_def(proto, input_map=handles, name="")
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    with v1.Session(task.target, graph=graph, config=config) as session:
        session.run("call", feed_dict=feeds, options=v1.RunOptions(timeout_in_ms=CALL_MS))


def _eagerly(definition, attrs, inputs):
    """Runs the call as an eager op."""
    tensors = []
    for dtype, value in inputs:
        if dtype == tf.resource:
            tensors.append(_handle("never made" if value == "forged" else value))
        elif dtype == tf.variant:
            tensors.append(tf.raw_ops.EmptyTensorList(element_shape=-1, max_num_elements=1, element_dtype=tf.float32))
        else:
            tensors.append(tf.constant(value, dtype))
    flat = []
    for name, attr in attrs.items():
        kind = attr.WhichOneof("value")
        if kind == "list":
            shapes = [None if one.unknown_rank else [dim.size for dim in one.dim] for one in attr.list.shape]
            values = [*attr.list.s, *attr.list.i, *attr.list.type, *shapes]
        elif kind == "shape":
            values = None if attr.shape.unknown_rank else [dim.size for dim in attr.shape.dim]
        else:
            values = attr.func.name if kind == "func" else getattr(attr, kind)
        flat.extend([name, values])
    lengths = {name: len(attr.list.type) for name, attr in attrs.items()}
    outputs = sum(
        attrs[arg.number_attr].i if arg.number_attr else lengths.get(arg.type_list_attr, 1) for arg in definition.output_arg
    )
    manager = cancellation.CancellationManager()
    timer = threading.Timer(CALL_MS / 1000, manager.start_cancel)
    timer.start()
    try:
        execute.execute_with_cancellation(definition.name, outputs, tensors, tuple(flat), context.context(), manager)
    finally:
        timer.cancel()


def prepare(task):
    """Makes the variables and the queue that the handles stand for, in the server and for eager ops."""

    def starts():
        return [
            tf.raw_ops.AssignVariableOp(
                resource=_handle(name), value=tf.constant("" if dtype == tf.string else 0, dtype, [64])
            )
            for name, dtype in _VARIABLES.items()
        ]

    starts()
    with tf.Graph().as_default() as graph:
        operations = [*starts(), _handle("a queue")]
    with v1.Session(task.target, graph=graph) as session:
        session.run(operations)


def call(task, seed, first, count, only=None):
    """Makes the calls from number ``first`` on, ``count`` of each op, and announces each on stderr.

    Returns:
      By op how often its calls ended in which way: "ok", "told" (an error that speaks of tfsched), or with which exception.
    """
    known = definitions(task)
    ops = [known[name] for name in sorted(known)] if only is None else [known[name] for name in only]
    ended = {op.name: {} for op in ops}
    for position in range(first, count * len(ops)):
        number, op = divmod(position, len(ops))
        attrs, inputs = draw(seed, ops[op], number)
        print(f"call {position} {ops[op].name} {number}", file=sys.stderr, flush=True)
        try:
            if number % 4 == 3:
                _eagerly(ops[op], attrs, inputs)
            else:
                _in_session(task, ops[op], attrs, inputs)
            how = "ok"
        except (tf.errors.OpError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            how = "told" if "tfsched" in str(error).lower() else type(error).__name__
        of = ended[ops[op].name]
        of[how] = of.get(how, 0) + 1
    return ended
