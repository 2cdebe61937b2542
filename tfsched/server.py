"""The server: stock TensorFlow's, with the scheduler in its send path."""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from tfsched.control import about, environment
from tfsched.grappler import summary
from tfsched.grappler.bridge import install, pass_stats

# cc/transport/server.cc registers it. Peers may run stock "grpc": the wire is unchanged.
PROTOCOL = "grpc+tfsched"

install()  # so that tf.distribute.Server(..., protocol=tfsched.PROTOCOL) works as it stands


class Server(tf.distribute.Server):
    """A drop-in for ``tf.distribute.Server`` whose sends are scheduled.

    Takes the same arguments; only the default of ``protocol`` differs.
    """

    def __init__(
        self,
        server_or_cluster_def: Any,
        job_name: str | None = None,
        task_index: int | None = None,
        protocol: str | None = PROTOCOL,
        config: Any = None,
        start: bool = True,
    ):
        super().__init__(
            server_or_cluster_def,
            job_name=job_name,
            task_index=task_index,
            protocol=protocol or PROTOCOL,
            config=config,
            start=start,
        )
        task = f"/job:{self.server_def.job_name}/task:{self.server_def.task_index}"
        about.tell_tasks(lambda: [task])
        environment.begin()
        summary.at_exit()


def _graphs() -> dict[str, Any]:
    """The options of the last graph that this process was asked to schedule."""
    options = pass_stats().options
    return {} if options is None else dataclasses.asdict(options)


about.tell("graphs", _graphs)
