"""Variables to parameter servers, so that all of them carry the same bytes.

May import TensorFlow, absl and errors.
"""

from tfsched.placement.balance import SHARD_BYTES
from tfsched.placement.sessions import balanced_device_setter, shard_partitioner
from tfsched.placement.sharding import sharded_variables
from tfsched.placement.strategies import balanced_strategy

__all__ = ["SHARD_BYTES", "balanced_device_setter", "balanced_strategy", "shard_partitioner", "sharded_variables"]
