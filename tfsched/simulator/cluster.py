"""The cluster that is simulated: tasks, links, and how steps are kept together."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml

from tfsched.ordering import _checks
from tfsched.ordering._checks import show

from .errors import SimulatorError

ARCHITECTURES = ("ps", "allreduce", "ring")
# Of cc/collective, in the order of its numbers.
ALGORITHMS = ("direct", "everybody", "doubling", "ring")
PLACEMENTS = ("round_robin", "balanced")
STRAGGLERS = ("none", "normal", "exponential", "pareto")
UPDATES = ("tensor", "piece")

# Beyond these nobody has a cluster, and a wrong unit is more likely.
MAX_TASKS = 65_536
MAX_US = 1e12
_DEEPEST = 20
_OPENING = (
    yaml.BlockMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.FlowSequenceStartToken,
)
_CLOSING = (yaml.BlockEndToken, yaml.FlowMappingEndToken, yaml.FlowSequenceEndToken)
_COUNTS = {"workers": 1, "servers": 1, "tasks_per_host": 1, "streams": 1, "grace_us": 0, "window_bytes": 0}
_MOST = {"grace_us": int(MAX_US), "window_bytes": 2**62}
_TIMES = (
    "startup_us",
    "release_us",
    "step_overhead_us",
    "update_us_per_mb",
    "processing_us_per_mb",
    "join_us_per_mb",
    "straggler_scale",
)
_FLAGS = ("barrier", "synchronous", "colocated")
_CHOICES = {
    "architecture": ARCHITECTURES,
    "algorithm": ("auto", *ALGORITHMS),
    "placement": PLACEMENTS,
    "straggler": STRAGGLERS,
    "updates": UPDATES,
}


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A cluster, with times in µs and bandwidths in bits per second. docs/simulator.md says what each field does.

    Attributes:
      workers: tasks that compute.
      servers: parameter servers; of no meaning without "ps".
      architecture: "ps", parameter servers; "allreduce", workers that exchange gradients message by message, as
        tfsched's do; "ring", all-reduce over a ring of the workers by its formula, all links as one resource, as papers
        have it.
      algorithm: of "allreduce": "auto", by size and workers (docs/allreduce-internals.md), or one of them for all tensors.
      bandwidth_bps: of each host's link, in either direction at once.
      server_bandwidth_bps: the same for hosts of servers; None for `bandwidth_bps`.
      worker_bandwidth_bps: the same for the host of each worker, one number for each; None for `bandwidth_bps`.
      startup_us: start-up cost of each message. Its connection is held for so long, the links are not.
      release_us: from a message's last byte until the sender has its credit back.
      step_overhead_us: from a step's beginning until its tensors are asked for and its ops may run.
      update_us_per_mb: time to apply an update, of 10^6 bytes.
      processing_us_per_mb: from the arrival of 10^6 bytes until the receiver can use them.
      join_us_per_mb: of all-reduces: what a worker takes to join 10^6 bytes of a group, and as long again to split them.
      contention: what the time of an op is multiplied by if its worker's host sends and receives when it starts, at least 1:
        the network's work takes processor time from the computation. If it does only one of the two, the op takes half as
        much longer.
      barrier: a step begins when the updates of the last one are applied; False: each tensor for itself.
      synchronous: updates wait for the gradients of all workers.
      updates: "tensor": a tensor is updated when all its pieces have arrived, "piece": each piece by itself.
      compute_scale: the workers' speed, one number or one for each; 2.0 computes in half the time.
      straggler: by which distribution op times of a worker and step vary: "none"; "normal", with standard deviation
        `straggler_scale` around 1 and at least 0.1; "exponential", 1 plus an exponential one of mean `straggler_scale`;
        "pareto", 1 plus `straggler_scale` times a Pareto (Lomax) one of shape 2.5.
      straggler_scale: see `straggler`.
      placement: parameters to servers, "round_robin" as TensorFlow does, or "balanced", largest first to the emptiest.
      tasks_per_host: so many tasks, workers or servers, share a host and its link.
      colocated: servers live on the workers' hosts, the first on the first.
      streams: ops that a worker computes at once.
      grace_us: what an idle sender under "tictac" waits for a missing rank, at least.
      window_bytes: so much of a message is sent before other messages of its connection have their turn; 0: all of it.

    Raises SimulatorError for a value that is not one of these.
    """

    workers: int = 1
    servers: int = 1
    architecture: str = "ps"
    algorithm: str = "auto"
    bandwidth_bps: float = 1e9
    server_bandwidth_bps: float | None = None
    worker_bandwidth_bps: tuple[float, ...] | None = None
    startup_us: float = 0.0
    release_us: float = 0.0
    step_overhead_us: float = 0.0
    update_us_per_mb: float = 0.0
    processing_us_per_mb: float = 0.0
    join_us_per_mb: float = 0.0
    contention: float = 1.0
    barrier: bool = True
    synchronous: bool = True
    updates: str = "tensor"
    compute_scale: float | tuple[float, ...] = 1.0
    straggler: str = "none"
    straggler_scale: float = 0.1
    placement: str = "round_robin"
    tasks_per_host: int = 1
    colocated: bool = False
    streams: int = 1
    grace_us: int = 5000
    window_bytes: int = 0

    def __post_init__(self) -> None:
        for name, least in _COUNTS.items():
            value = getattr(self, name)
            most = _MOST.get(name, MAX_TASKS)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise SimulatorError(f"{name} is {show(value)}; give a whole number from {least} to {most}")
        for name in _TIMES:
            self._set_number(name, MAX_US)
        self._set_number("bandwidth_bps", 1e18, positive=True)
        self._set_number("contention", 1e3, positive=True)
        if self.server_bandwidth_bps is not None:
            self._set_number("server_bandwidth_bps", 1e18, positive=True)
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise SimulatorError(f"{name} is {show(getattr(self, name))}; give true or false")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise SimulatorError(f"{name} is {show(getattr(self, name))}; give one of {', '.join(choices)}")
        if self.all_reduces and not self.synchronous:
            raise SimulatorError(
                f"synchronous is false and the architecture {self.architecture}; an all-reduce waits for all workers"
            )
        self._set_compute_scale()
        self._set_worker_bandwidths()

    def _set_number(self, name: str, most: float, *, positive: bool = False) -> None:
        object.__setattr__(self, name, self._number(getattr(self, name), name, most, positive))

    @staticmethod
    def _number(given: object, name: str, most: float, positive: bool) -> float:
        value = _checks.number(given, name, SimulatorError, positive=positive)
        if value > most or (positive and value < 1):
            least = "1" if positive else "0"
            raise SimulatorError(f"{name} is {show(value)}; give a number from {least} to {most:g}")
        return value

    def _set_worker_bandwidths(self) -> None:
        given: Any = self.worker_bandwidth_bps
        if given is None:
            return
        if not isinstance(given, (list, tuple)) or len(given) != self.workers:
            count = f"has {len(given)} numbers" if isinstance(given, (list, tuple)) else f"is {show(given)}"
            raise SimulatorError(f"worker_bandwidth_bps {count} for {self.workers} workers; give a list with one for each")
        values = tuple(self._number(value, "worker_bandwidth_bps", 1e18, True) for value in given)
        object.__setattr__(self, "worker_bandwidth_bps", values)
        for worker, bps in enumerate(values):
            first = worker // self.tasks_per_host * self.tasks_per_host
            if bps != values[first]:
                raise SimulatorError(
                    f"workers {first} and {worker} share a host, and worker_bandwidth_bps gives them {values[first]:g} and "
                    f"{bps:g}; give workers of one host the same"
                )

    def _set_compute_scale(self) -> None:
        scale: Any = self.compute_scale
        if isinstance(scale, (list, tuple)):
            if len(scale) != self.workers:
                raise SimulatorError(f"compute_scale has {len(scale)} speeds for {self.workers} workers; give one for each")
            values = tuple(self._speed(value) for value in scale)
            object.__setattr__(self, "compute_scale", values)
        else:
            object.__setattr__(self, "compute_scale", self._speed(scale))

    @staticmethod
    def _speed(value: object) -> float:
        speed = _checks.number(value, "compute_scale", SimulatorError, positive=True)
        if not 1e-6 <= speed <= 1e6:
            raise SimulatorError(f"compute_scale is {show(value)}; give a speed from 1e-6 to 1e6")
        return speed

    @property
    def all_reduces(self) -> bool:
        """Whether workers all-reduce, in whichever way: there are no servers."""
        return self.architecture != "ps"

    def replace(self, **changes: Any) -> Cluster:
        """The same cluster with some fields changed. Raises SimulatorError as the constructor does."""
        for name in changes:
            if name not in self.__dataclass_fields__:
                raise SimulatorError(f"a cluster has no {show(name)}; it has {', '.join(self.__dataclass_fields__)}")
        return dataclasses.replace(self, **changes)

    @classmethod
    def from_mapping(cls, data: object, what: str = "the cluster") -> Cluster:
        """A cluster from field names and values. Raises SimulatorError for anything else."""
        if not isinstance(data, Mapping):
            raise SimulatorError(f"{what} is {show(data)}; give a mapping of fields, as in 'workers: 4'")
        fields = tuple(cls.__dataclass_fields__)
        for key in data:
            if key not in fields:
                raise SimulatorError(f"{what} has the unknown key {show(key)}; known keys: {', '.join(fields)}")
        return cls(**data)

    @classmethod
    def from_yaml(cls, path: str) -> Cluster:
        """Read a cluster from a local YAML file. Raises SimulatorError if it cannot be read or is none."""
        return cls.from_mapping(read_yaml(path), f"the cluster {path}")

    def to_yaml(self) -> str:
        """YAML text of all fields; `from_yaml` of a file with it gives an equal cluster."""
        fields = dataclasses.asdict(self)
        for name in ("compute_scale", "worker_bandwidth_bps"):
            if isinstance(fields[name], tuple):
                fields[name] = list(fields[name])
        return str(yaml.safe_dump(fields, sort_keys=False))

    def compute_factors(self, steps: int, seed: int) -> np.ndarray:
        """What op times are multiplied by, [step, worker]; the same numbers for the same seed."""
        random = np.random.Generator(np.random.PCG64(seed))
        shape = (steps, self.workers)
        if self.straggler == "normal":
            factors = np.maximum(1.0 + self.straggler_scale * random.standard_normal(shape), 0.1)
        elif self.straggler == "exponential":
            factors = 1.0 + self.straggler_scale * random.standard_exponential(shape)
        elif self.straggler == "pareto":
            factors = 1.0 + self.straggler_scale * random.pareto(2.5, shape)
        else:
            factors = np.ones(shape)
        return factors / np.asarray(self.compute_scale)

    def hosts(self) -> tuple[list[int], list[int], list[float]]:
        """The host of each worker, the host of each server, and each host's bandwidth in bits per second."""
        of_worker = [worker // self.tasks_per_host for worker in range(self.workers)]
        first = 0 if self.colocated else of_worker[-1] + 1
        of_server = [first + server // self.tasks_per_host for server in range(self.servers)]
        if self.all_reduces:
            of_server = []
        elif self.colocated:
            of_server = [host % (of_worker[-1] + 1) for host in of_server]
        bps = [self.bandwidth_bps] * (max([*of_worker, *of_server]) + 1)
        for host, worker_bps in zip(of_worker, self.worker_bandwidth_bps or (), strict=False):
            bps[host] = worker_bps
        if self.server_bandwidth_bps is not None:
            for host in of_server:
                bps[host] = self.server_bandwidth_bps
        return of_worker, of_server, bps

    def worker_bps(self) -> float:
        """What one worker has, in either direction, if all of them use all servers at once: bits per second.

        Its part of its own host's link or an even part of all servers' links, whichever is less.
        """
        of_worker, of_server, bps = self.hosts()
        own_bps = min(bps[host] / tasks for host, tasks in collections.Counter(of_worker).items())
        if not of_server:
            return own_bps
        return min(own_bps, sum(bps[host] for host in set(of_server)) / self.workers)


def read_yaml(path: str) -> Any:
    """The content of a local YAML file, of plain values only. Raises SimulatorError."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError:
        raise SimulatorError(f"{path} is not UTF-8 text; give a YAML file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SimulatorError(f"{path} cannot be read ({reason}); check the path") from None
    try:
        _check_tokens(path, text)
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SimulatorError(f"{path} is not YAML ({' '.join(str(error).split())}); check the file") from None
    except (RecursionError, ValueError) as error:
        raise SimulatorError(f"{path} cannot be read as YAML ({' '.join(str(error).split())}); check the file") from None


def _check_tokens(path: str, text: str) -> None:
    """Refuses what makes reading take long: aliases, which unfold to any size, and deep nesting."""
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        if isinstance(token, yaml.AliasToken):
            raise SimulatorError(f"{path} uses a YAML alias (*name); write the value out")
        if isinstance(token, _OPENING):
            depth += 1
        elif isinstance(token, _CLOSING):
            depth -= 1
        if depth > _DEEPEST:
            raise SimulatorError(f"{path} is nested more than {_DEEPEST} deep; check the file")
