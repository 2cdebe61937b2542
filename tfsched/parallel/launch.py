"""Which workers there are and which of them this process is, as its environment says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from tfsched.errors import TfschedError

# The order of their ranks: a chief is rank 0.
JOBS = ("chief", "worker")
ADDRESSES, RANK = "TFSCHED_ADDRESSES", "TFSCHED_RANK"
# What launchers set: the variable with the rank, and the one with the number of processes. SLURM_NTASKS stands in a batch
# script as well, which is one process.
_LAUNCHERS = (
    (RANK, "TFSCHED_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


@dataclasses.dataclass(frozen=True)
class Place:
    """A worker's place among all.

    Attributes:
      cluster: job -> addresses "host:port", by task.
      job: this process's.
      index: of its task.
    """

    cluster: dict[str, list[str]]
    job: str
    index: int

    @property
    def addresses(self) -> list[str]:
        """Of all workers, in the order of their ranks."""
        return [address for job in JOBS for address in self.cluster.get(job, [])]

    @property
    def rank(self) -> int:
        """This worker's."""
        return self.index + (len(self.cluster.get("chief", [])) if self.job == "worker" else 0)

    @property
    def neighbours(self) -> list[int]:
        """Ranks on this worker's host, this one among them."""
        hosts = [address.rpartition(":")[0] for address in self.addresses]
        return [rank for rank, host in enumerate(hosts) if host == hosts[self.rank]]


def from_environment(environment: Mapping[str, str]) -> Place | None:
    """Reads TF_CONFIG, or else TFSCHED_ADDRESSES and a launcher's variables.

    Returns:
      The place; None where this is the only process.

    Raises:
      TfschedError: the variables contradict themselves, or do not say enough.
    """
    text = environment.get("TF_CONFIG", "").strip()
    config = _parsed(text) if text else {}
    if config.get("cluster"):
        return _of_tf_config(config)
    if environment.get(ADDRESSES, "").strip():
        return _of_addresses(environment)
    for _, size in _LAUNCHERS:
        if environment.get(size, "1") != "1":
            raise TfschedError(
                f"{size} is {environment[size]!r}, but nothing says where the other workers are; set {ADDRESSES} to the "
                f"address host:port of each, separated by commas, in the order of their ranks, or set TF_CONFIG."
            )
    return None


def _parsed(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except ValueError as error:
        raise TfschedError(f"TF_CONFIG is {text!r}, which is no JSON ({error}); give a cluster and a task.") from None
    if not isinstance(config, dict):
        raise TfschedError(f"TF_CONFIG is {text!r}; give an object with a cluster and a task.")
    return config


def _of_tf_config(config: dict[str, Any]) -> Place:
    cluster, task = config["cluster"], config.get("task")
    if not isinstance(cluster, dict) or not all(_is_list_of_addresses(tasks) for tasks in cluster.values()):
        raise TfschedError(f"the cluster of TF_CONFIG is {cluster!r}; give a list of addresses host:port for each job.")
    if "ps" in cluster:
        raise TfschedError(
            "the cluster of TF_CONFIG has the job 'ps', and tfsched.parallel has no parameter servers; name workers only."
        )
    if not isinstance(task, dict) or task.get("type") not in JOBS or task["type"] not in cluster:
        raise TfschedError(f"the task of TF_CONFIG is {task!r}; give one of job chief or worker of the cluster.")
    index, tasks = task.get("index"), cluster[task["type"]]
    if not isinstance(index, (int, str)) or not str(index).isdecimal() or int(index) >= len(tasks):
        raise TfschedError(
            f"the task's index of TF_CONFIG is {index!r}; job {task['type']} has {len(tasks)} tasks, counted from 0."
        )
    return Place({job: list(cluster[job]) for job in JOBS if job in cluster}, task["type"], int(index))


def _is_list_of_addresses(tasks: Any) -> bool:
    return isinstance(tasks, list) and bool(tasks) and all(isinstance(one, str) and _is_address(one) for one in tasks)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal()


def _of_addresses(environment: Mapping[str, str]) -> Place:
    addresses = [address.strip() for address in environment[ADDRESSES].split(",")]
    for address in addresses:
        if not _is_address(address):
            raise TfschedError(f"{ADDRESSES} has {address!r}; give host:port for each worker, separated by commas.")
    for variable, size in _LAUNCHERS:
        if variable not in environment:
            continue
        told = environment.get(size, str(len(addresses)))
        if told != str(len(addresses)):
            raise TfschedError(f"{ADDRESSES} has {len(addresses)} addresses, but {size} is {told!r}; give one for each.")
        rank = environment[variable]
        if not rank.isdecimal() or int(rank) >= len(addresses):
            raise TfschedError(f"{variable} is {rank!r}; {ADDRESSES} has {len(addresses)} workers, counted from 0.")
        return Place({"worker": addresses}, "worker", int(rank))
    raise TfschedError(f"{ADDRESSES} is set, but nothing says which worker this is; set {RANK}, from 0 on.")
