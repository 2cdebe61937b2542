"""Graphs of tf.functions as they reach the pass in a worker: traced by TensorFlow, placed as its placer would."""

import tensorflow as tf
from graphs import PS0, PS1, WORKER
from tensorflow.core.framework import graph_pb2, types_pb2

_SIDE = 8


class Function:
    """A traced function of variables on parameter servers.

    Args:
      body: called with the variables while tracing; what it returns the function returns.
      servers: the device of each variable.
      shape: of each.
    """

    def __init__(self, body, servers=(PS0, PS1), shape=(_SIDE, _SIDE)):
        self.variables = [tf.Variable(tf.ones(shape)) for _ in servers]
        traced = tf.function(lambda: body(*self.variables)).get_concrete_function()
        self.graph = self._placed(traced, dict(zip(map(id, (v.handle for v in self.variables)), servers, strict=True)))
        self.fetches = [node.name for node in self.graph.node if node.op == "_Retval"]
        self.keep = [op.name for op in traced.graph.control_outputs]

    def _placed(self, traced, server_of):
        """Placeholders of captures become arguments; ops on a handle go to it, others to their device or the worker."""
        graph = graph_pb2.GraphDef(versions=traced.graph.as_graph_def().versions)
        graph.node.extend(traced.graph.as_graph_def().node)
        nodes = {node.name: node for node in graph.node}
        # Pinning would be here; tracing on one machine leaves the device fields as the body has set them.
        for position, (outer, inner) in enumerate(traced.graph.captures):
            node = nodes[inner.op.name]
            variable = next(v for v in self.variables if v.handle is outer)
            node.op = "_Arg"
            node.attr.clear()
            node.attr["T"].type = types_pb2.DT_RESOURCE
            node.attr["index"].i = position
            node.attr["_handle_dtypes"].list.type.append(variable.dtype.as_datatype_enum)
            node.attr["_handle_shapes"].list.shape.append(variable.shape.as_proto())
            node.device = server_of[id(outer)]
        for node in graph.node:
            source = nodes.get(node.input[0]) if node.input else None
            if source is not None and source.op == "_Arg":
                node.device = source.device
            node.device = node.device or WORKER
        for position, output in enumerate(traced.graph.outputs):
            node = graph.node.add(
                name=f"result_{position}", op="_Retval", device=WORKER, input=[output.name.replace(":0", "")]
            )
            node.attr["T"].type = output.dtype.as_datatype_enum
            node.attr["index"].i = position
        return graph


def loss_of(*values):
    """A chain of layers on the worker."""
    with tf.device(WORKER):
        hidden = tf.ones([2, _SIDE])
        for value in values:
            hidden = tf.tanh(hidden @ value)
        return tf.reduce_mean(hidden)


def gradients_of(*variables):
    """(loss, gradients), computed on the worker."""
    with tf.GradientTape() as tape:
        loss = loss_of(*variables)
    with tf.device(WORKER):
        return loss, tape.gradient(loss, variables)
