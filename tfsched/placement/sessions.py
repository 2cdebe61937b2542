"""Balanced servers for graphs and sessions: in place of replica_device_setter's round robin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfsched.placement.balance import SHARD_BYTES, Loads, checked_shard_bytes, shards_of

_v1 = tf.compat.v1


def balanced_device_setter(
    cluster: Any = None,
    ps_tasks: int = 0,
    ps_device: str = "/job:ps",
    worker_device: str = "/job:worker",
    ps_ops: list[str] | None = None,
) -> Callable[[Any], str]:
    """A device function like ``tf.compat.v1.train.replica_device_setter``'s that gives all servers the same bytes.

    Each variable goes to the server that holds the fewest bytes so far. Slots of optimizers stay with their variables, and
    do not count: they never travel. Make a new one for each graph. Workers that build the same graph place it alike.

    Args:
      cluster: a ``ClusterSpec``, or what makes one; its servers are those of `ps_device`'s job.
      ps_tasks: how many servers there are; of no meaning with `cluster`.
      ps_device: device of the servers' job.
      worker_device: device of all other ops.
      ps_ops: types of ops that belong on servers; None for TensorFlow's own list.

    Returns:
      What ``tf.compat.v1.device`` takes.

    Raises:
      TfschedError: there is no server.
    """
    if cluster is not None:
        job = tf.DeviceSpec.from_string(ps_device).job
        ps_tasks = len(tf.train.ClusterSpec(cluster).as_dict().get(job, ()))
    setter: Callable[[Any], str] = _v1.train.replica_device_setter(
        ps_tasks=ps_tasks,
        ps_device=ps_device,
        worker_device=worker_device,
        ps_ops=ps_ops,
        ps_strategy=_Emptiest(ps_tasks),
    )
    return setter


def shard_partitioner(servers: int, shard_bytes: int = SHARD_BYTES) -> Callable[..., list[int]]:
    """A partitioner that cuts what is larger than `shard_bytes` into a shard for each server, along the first axis.

    For ``tf.compat.v1.variable_scope(..., partitioner=...)`` and for ``ParameterServerStrategy(variable_partitioner=...)``.

    Args:
      servers: how many there are.
      shard_bytes: variables of at most so many bytes stay whole.

    Returns:
      A function of a variable's shape and dtype; it gives the number of parts for each axis.

    Raises:
      TfschedError: no server, or `shard_bytes` below 1.
    """
    Loads(servers)  # refuses none
    checked_shard_bytes(shard_bytes)

    def partitioner(shape: Any, dtype: Any, axis: int = 0) -> list[int]:
        dimensions = tf.TensorShape(shape)
        parts = [1] * (dimensions.rank or 0)
        if parts and dimensions.is_fully_defined():
            size = math.prod(dimensions.as_list()) * tf.as_dtype(dtype).size
            parts[axis] = shards_of(size, dimensions[axis], servers, shard_bytes)
        return parts

    return partitioner


class _Emptiest:
    """The strategy of a device setter: which server an op of a variable goes to."""

    def __init__(self, servers: int):
        self._loads = Loads(servers)

    def __call__(self, op: Any) -> int:
        server = self._loads.emptiest()
        if not is_colocated(getattr(op, "graph", None)):
            self._loads.add(server, _size_of(op))
        return server


def is_colocated(graph: Any) -> bool:
    """Whether what is made in the graph now goes to another op's device, as a slot goes to its variable's."""
    # TensorFlow has no public way to see this before the op is complete.
    stack = getattr(graph, "_colocation_stack", None)
    return stack is not None and bool(list(stack.peek_objs()))


def _size_of(op: Any) -> int:
    """Bytes of the variable that `op`, an Operation or a NodeDef, makes; 0 of what has no shape."""
    attributes = (op if isinstance(op, _v1.NodeDef) else op.node_def).attr
    if "shape" not in attributes or "dtype" not in attributes:
        return 0
    shape = tf.TensorShape(attributes["shape"].shape)
    return math.prod(shape.as_list()) * tf.as_dtype(attributes["dtype"].type).size if shape.is_fully_defined() else 0
