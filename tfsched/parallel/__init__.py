"""Data parallel training without a tf.distribute strategy, in the manner of Horovod: for Keras 3, tf_keras, custom loops.

May import TensorFlow, eager, server, options and errors; no Keras.
"""

from tfsched.parallel import callbacks as callbacks
from tfsched.parallel.gradients import Compression, DistributedGradientTape
from tfsched.parallel.membership import init, is_initialized, local_rank, local_size, rank, shutdown, size
from tfsched.parallel.optimizers import DistributedOptimizer
from tfsched.parallel.values import (
    Average,
    Max,
    Min,
    Product,
    ReduceOp,
    Sum,
    allgather,
    allreduce,
    barrier,
    broadcast,
    broadcast_object,
    broadcast_variables,
    grouped_allreduce,
)

__all__ = [
    "Average",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "grouped_allreduce",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]
