"""The tasks of a local cluster and the TF_CONFIG of each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

CHIEF, WORKER, PS = "chief", "worker", "ps"


@dataclasses.dataclass(frozen=True)
class Task:
    """One process of a cluster.

    Attributes:
      job: "chief", "worker" or "ps".
      index: of the task in its job, from 0 on.
    """

    job: str
    index: int

    @property
    def name(self) -> str:
        """As in the output: "worker-0"."""
        return f"{self.job}-{self.index}"


def tasks_of(workers: int, ps: int = 0, chief: bool = False) -> list[Task]:
    """All tasks, the servers first: whoever trains finds them there."""
    counts = {PS: ps, WORKER: workers, CHIEF: int(chief)}
    return [Task(job, index) for job, count in counts.items() for index in range(count)]


def tf_configs(tasks: Sequence[Task], addresses: Sequence[str]) -> Mapping[Task, str]:
    """Each task's TF_CONFIG; ``addresses`` are "host:port", one a task."""
    cluster: dict[str, list[str]] = {}
    for task, address in zip(tasks, addresses, strict=True):
        cluster.setdefault(task.job, []).append(address)
    return {task: json.dumps({"cluster": cluster, "task": {"type": task.job, "index": task.index}}) for task in tasks}
