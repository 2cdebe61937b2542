"""Waits for what is under way before this process joins another cluster, and forgets what it knew of the old one's tasks.

Tasks bear their names in every cluster, so whatever is kept by a task's name would be taken for the new cluster's. And
nobody could ask the old one any more: a coordinator that is still there would run unconfirmed closures again, find that its
workers are gone, and take this process back to its own cluster.
"""

from __future__ import annotations

import functools
from typing import Any

from tensorflow.python.eager import context as context_lib

from tfsched._log import log
from tfsched.eager import capability, confirming, numbering, outstanding, updating
from tfsched.errors import TfschedError


@functools.lru_cache(maxsize=1)
def watch() -> None:
    """Has this process do so from now on."""
    stock_set, stock_update = context_lib.Context.set_server_def, context_lib.Context.update_server_def

    @functools.wraps(stock_set)
    def set_server_def(self: Any, server_def: Any, *args: Any, **kwargs: Any) -> None:
        left = set(_addresses(self._server_def))
        _before(left)
        try:
            stock_set(self, server_def, *args, **kwargs)
        finally:
            _after(left)

    @functools.wraps(stock_update)
    def update_server_def(self: Any, server_def: Any, *args: Any, **kwargs: Any) -> None:
        # A coordinator does this with what it has, too, when a worker is there again.
        before, after = _addresses(self._server_def), _addresses(server_def)
        left = {task for task, address in before.items() if after.get(task) != address}
        _before(left)
        try:
            with updating.alone(self, [task for task in after if task != _own(server_def)]):
                stock_update(self, server_def, *args, **kwargs)
        finally:
            _after(left)

    context_lib.Context.set_server_def = set_server_def
    context_lib.Context.update_server_def = update_server_def


def _addresses(server_def: Any) -> dict[str, str]:
    """Task -> address of all tasks of a cluster, of no tasks if there is none."""
    if server_def is None:
        return {}
    return {
        f"/job:{job.name}/replica:0/task:{index}": address
        for job in server_def.cluster.job
        for index, address in job.tasks.items()
    }


def _own(server_def: Any) -> str:
    """This process's task in a cluster."""
    return f"/job:{server_def.job_name}/replica:0/task:{server_def.task_index}"


def _before(left: set[str]) -> None:
    """Waits for the updates on tasks that are about to be left."""
    # First, for an error is told once, and a closure's is its coordinator's.
    confirming.settle(left, outstanding.DEFAULT_TIMEOUT_S)
    try:
        outstanding.drain([task for task in left if task in outstanding.tasks])
    except TfschedError as error:
        log.warning("another cluster is joined all the same: %s", error)


def _after(left: set[str]) -> None:
    """Forgets the tasks."""
    for task in left:
        outstanding.forget(task)
        capability.forget(task)
        numbering.forget(task)
