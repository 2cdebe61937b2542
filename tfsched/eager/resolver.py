"""The cluster resolver of a strategy whose tasks speak tfsched's protocol."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfsched.eager import own_updates
from tfsched.errors import TfschedError
from tfsched.server import PROTOCOL


def cluster_resolver(cluster_spec: Any = None, task_type: str | None = None, task_id: int | None = None) -> Any:
    """A resolver for ``ParameterServerStrategy`` and ``MultiWorkerMirroredStrategy``, with ``rpc_layer=tfsched.PROTOCOL``.

    Args:
      cluster_spec: a ``tf.train.ClusterSpec``, or what makes one ({"ps": [...], "worker": [...], "chief": [...]}); None
        takes all three from the environment variable TF_CONFIG.
      task_type: of this task: "chief", "worker" or "ps".
      task_id: of this task.

    Raises:
      TfschedError: ``cluster_spec`` is none, or task_type and task_id are of no task in it.
    """
    own_updates.watch()  # datasets may be made before the program says what tfsched is to do
    if cluster_spec is None:
        return tf.distribute.cluster_resolver.TFConfigClusterResolver(
            task_type=task_type, task_id=task_id, rpc_layer=PROTOCOL
        )
    try:
        spec = tf.train.ClusterSpec(cluster_spec)
    except (TypeError, ValueError) as error:
        raise TfschedError(
            f"cluster_resolver got {cluster_spec!r} as cluster_spec ({error}); name each job's tasks."
        ) from None
    if task_type is not None and task_type not in spec.jobs:
        raise TfschedError(f"task_type is {task_type!r}; the cluster has the jobs {', '.join(spec.jobs)}.")
    if task_type is not None and task_id is not None and task_id not in spec.task_indices(task_type):
        raise TfschedError(f"task_id is {task_id!r}; job {task_type} has the tasks {spec.task_indices(task_type)}.")
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type=task_type, task_id=task_id, rpc_layer=PROTOCOL
    )
