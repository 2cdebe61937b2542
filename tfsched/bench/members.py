"""How a worker of the bench all-reduces with the others: under a strategy, by tfsched.parallel, or by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import collective_ops

from tfsched.bench.settings import CUSTOM, MIRRORED, TFSCHED


class Strategy:
    """A worker under MultiWorkerMirroredStrategy, whose server speaks the given protocol.

    Attributes:
        size: how many workers there are.
    """

    def __init__(self, workers: list[str], protocol: str, index: int) -> None:
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({"worker": workers}), task_type="worker", task_id=index, rpc_layer=protocol
        )
        self.strategy: Any = tf.distribute.MultiWorkerMirroredStrategy(resolver)
        self.size = len(workers)
        self.together = self._make_together()

    def make(self, build: Callable[[], Any]) -> Any:
        """What `build` makes, its variables on all workers."""
        with self.strategy.scope():
            return build()

    def run(self, replica: Callable[[Any], Any], batch: Any) -> Any:
        """A worker's part of a step; called within a tf.function."""
        return self.strategy.run(replica, args=(batch,))

    def sums(self, gradients: Sequence[Any]) -> list[Any]:
        """The sums of all workers' gradients; called within `run`."""
        return list(tf.distribute.get_replica_context().all_reduce("sum", list(gradients)))

    def _make_together(self) -> Any:
        """A function that returns when all workers have called it: a tiny all-reduce, which is always stock's."""

        @tf.function
        def together() -> Any:
            return self.strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([1])))

        return together


class Parallel:
    """A worker that has joined the others by tfsched.parallel; its settings switch scheduling on."""

    def __init__(self, workers: list[str], index: int) -> None:
        import tfsched
        from tfsched import parallel

        os.environ.pop("TF_CONFIG", None)
        os.environ.update({"TFSCHED_ADDRESSES": ",".join(workers), "TFSCHED_RANK": str(index)})
        parallel.init()
        tfsched.disable()  # init enables it
        self.size = len(workers)
        self.together = parallel.barrier

    def make(self, build: Callable[[], Any]) -> Any:
        """What `build` makes: all workers have the same seed."""
        return build()

    def run(self, replica: Callable[[Any], Any], batch: Any) -> Any:
        """As of Strategy."""
        return replica(batch)

    def sums(self, gradients: Sequence[Any]) -> list[Any]:
        """As of Strategy."""
        from tfsched import parallel

        return parallel.grouped_allreduce(gradients, parallel.Sum)

    def distributed(self, optimizer: Any) -> Any:
        """A Keras 3 optimizer that averages the workers' gradients."""
        from tfsched import parallel

        return parallel.DistributedOptimizer(optimizer)


# Of the group that reduces by hand; far from those that a strategy counts from 1.
_GROUP_KEY = 2_000_001


class ByHand:
    """A worker without tfsched that all-reduces one pack of all gradients with the stock op.

    Keras 3 trains under no strategy on several machines, so this is what its users would write. A strategy starts the
    server, and nothing else of it is used.
    """

    def __init__(self, workers: list[str], protocol: str, index: int) -> None:
        joined = Strategy(workers, protocol, index)
        self._device = f"/job:worker/replica:0/task:{index}/device:CPU:0"
        self.size = len(workers)
        self.together = joined.together
        with tf.device(self._device):
            # Counts the collectives, so that each has a number that is the same on all workers.
            self._counter = tf.Variable(0, trainable=False)

    def make(self, build: Callable[[], Any]) -> Any:
        """As of Parallel."""
        return build()

    def run(self, replica: Callable[[Any], Any], batch: Any) -> Any:
        """As of Strategy."""
        return replica(batch)

    def sums(self, gradients: Sequence[Any]) -> list[Any]:
        """As of Strategy."""
        return self._reduced(gradients, "Id")

    def _reduced(self, gradients: Sequence[Any], final_op: str) -> list[Any]:
        with tf.device(self._device):
            pack = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
            with tf.control_dependencies([pack]):
                key = tf.identity(self._counter.assign_add(1))
            reduced = collective_ops.all_reduce_v2(pack, self.size, _GROUP_KEY, key, final_op=final_op)
            parts = tf.split(reduced, [gradient.shape.num_elements() for gradient in gradients])
            return [tf.reshape(part, gradient.shape) for part, gradient in zip(parts, gradients, strict=True)]

    def distributed(self, optimizer: Any) -> Any:
        """As of Parallel."""
        base: Any = type(optimizer)
        reduced = self._reduced

        class Averaging(base):
            def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
                return super().apply(reduced(grads, "Div"), trainable_variables)

        return Averaging.from_config(optimizer.get_config())


Member = Strategy | Parallel | ByHand


def join(api: str, loop: str, workers: list[str], protocol: str, index: int) -> Member:
    """Joins the other workers' processes of the same protocol, and waits for them.

    A stock worker beside tfsched.parallel's trains as one would without it: under the strategy in a custom loop, and by hand
    with Keras 3, which knows no strategy for several machines.

    Args:
        api, loop: as of BenchConfig.
        workers: addresses of all, in the order of their numbers.
        protocol: of all their servers.
        index: this worker's number.
    """
    if api == MIRRORED or (protocol != TFSCHED and loop == CUSTOM):
        return Strategy(workers, protocol, index)
    return Parallel(workers, index) if protocol == TFSCHED else ByHand(workers, protocol, index)
