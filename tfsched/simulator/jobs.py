"""Trainings at the same time whose hosts share links: what each loses to the others, and what control over them gains."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tfsched.ordering import _checks
from tfsched.ordering._checks import show

from . import native
from .cluster import MAX_US, Cluster
from .errors import SimulatorError
from .method import Method
from .pieces import schedule
from .simulate import MAX_STEPS, make_model
from .workload import Workload

SHARES = ("none", "servers", "workers", "all")
# More steps than a job would make alone in the same time, so that it is not through before the others.
_SPARE = 1.1


@dataclasses.dataclass(frozen=True)
class Job:
    """One training.

    Attributes:
      name: unique among the jobs.
      workload, cluster, method: as `simulate` takes them. The method plans as if the job were alone.
      shares: whose hosts are also those of other jobs that say so: its "servers", its "workers", "all" or "none". The first
        such host of one job is the first of every other, and so on. Hosts that are shared have one bandwidth.

    Raises SimulatorError for a value that is not one of these, and for a ring by its formula, which has no links.
    """

    name: str
    workload: Workload
    cluster: Cluster
    method: Method
    shares: str = "servers"

    def __post_init__(self) -> None:
        _checks.name(self.name, "a job's name", SimulatorError)
        if self.shares not in SHARES:
            raise SimulatorError(f"job {self.name!r} shares {show(self.shares)}; give one of {', '.join(SHARES)}")
        if self.cluster.architecture == "ring":
            raise SimulatorError(f"job {self.name!r} has the architecture ring, which has no links; give ps or allreduce")

    def hosts(self) -> list[str]:
        """Names of the cluster's hosts, in the order of `Cluster.hosts`; those of one name are one host."""
        of_worker, of_server, host_bps = self.cluster.hosts()
        names = [f"{self.name}/host{host}" for host in range(len(host_bps))]
        for what, of_task in (("servers", of_server), ("workers", of_worker)):
            if self.shares in (what, "all"):
                for place, host in enumerate(dict.fromkeys(of_task)):
                    names[host] = f"{what}{place}"
        return names


@dataclasses.dataclass(frozen=True)
class Control:
    """What somebody who sees all jobs may change of one.

    Attributes:
      priority: of all that it sends, on every link; smaller is sooner. The others share what it leaves.
      start_us: when its first step begins.
      rate_bps: what its tasks hand over to one receiver each, as `tfsched.configure(rate_bps=...)` does; 0: no cap.

    Raises SimulatorError for a value that is not one of these.
    """

    priority: int = 0
    start_us: float = 0.0
    rate_bps: int = 0

    def __post_init__(self) -> None:
        for name, most in (("priority", 1000), ("rate_bps", 2**62)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
                raise SimulatorError(f"{name} is {show(value)}; give a whole number from 0 to {most}")
        start_us = _checks.number(self.start_us, "start_us", SimulatorError)
        if start_us > MAX_US:
            raise SimulatorError(f"start_us is {show(start_us)}; give a number from 0 to {MAX_US:g}")
        object.__setattr__(self, "start_us", start_us)


class Alone(NamedTuple):
    """A job by itself: the mean time of a step, and of each of its hosts' links the share that it uses."""

    iteration_us: float
    sending: tuple[float, ...]
    receiving: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Beside:
    """Jobs beside each other, while all of them ran.

    Attributes:
      iteration_us: name -> mean time of a step.
      speed: name -> `Alone.iteration_us` / `iteration_us`; 1: it loses nothing.
      utilisation: "<host> sending" or "<host> receiving" of a shared host -> the share of its bandwidth that all jobs used,
        as if each message were sent evenly from its first to its last byte.
      begin_us: name -> when each step began, in the mean over its workers.
      moved_bytes: name -> what was pulled and pushed in all steps.
      end_us: when the last job was through.
    """

    iteration_us: dict[str, float]
    speed: dict[str, float]
    utilisation: dict[str, float]
    begin_us: dict[str, list[float]]
    moved_bytes: dict[str, int]
    end_us: float

    @property
    def mean_speed(self) -> float:
        """Of all jobs: the share of the computing that they would do alone."""
        return math.fsum(self.speed.values()) / len(self.speed)


class Jobs:
    """Jobs that were planned, and simulated alone, once; `beside` simulates them at the same time.

    Args:
      jobs: with different names.
      iterations: how many steps of the slowest job count.
      warmup: as many of its steps go before them.
      seed: of the first job, as `simulate` takes it; the next has the next one.

    Raises SimulatorError for jobs that cannot share hosts, and what `simulate` raises.
    """

    def __init__(self, jobs: Sequence[Job], *, iterations: int = 20, warmup: int = 2, seed: int = 0) -> None:
        for name, value, least in (("iterations", iterations, 1), ("warmup", warmup, 0), ("seed", seed, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_STEPS:
                raise SimulatorError(f"{name} is {show(value)}; give a whole number from {least} to {MAX_STEPS}")
        if not jobs or len({job.name for job in jobs}) < len(jobs):
            raise SimulatorError("there is no job, or two have the same name; give each one of its own")
        self.jobs, self.iterations, self.warmup, self.seed = list(jobs), iterations, warmup, seed
        self.host_bps: dict[str, float] = {}
        for job in jobs:
            for host, bps in zip(job.hosts(), job.cluster.hosts()[2], strict=True):
                if self.host_bps.setdefault(host, bps) != bps:
                    raise SimulatorError(
                        f"job {job.name!r} gives the shared host {host} {bps:g} bit/s, another one {self.host_bps[host]:g}; "
                        "give it one bandwidth"
                    )
        self._models = [self._model(job, seed + i) for i, job in enumerate(jobs)]
        self.alone = [self._alone(model) for model in self._models]

    def _model(self, job: Job, seed: int) -> dict[str, Any]:
        """The job's model with its own numbers of hosts, of as many steps as count."""
        scheduled = schedule(job.workload, job.cluster, job.method, seed)
        return make_model(job.workload, job.cluster, job.method, scheduled, self.warmup, self.iterations, seed)

    def _alone(self, model: dict[str, Any]) -> Alone:
        output = native.run(model)
        begin_us = output.begin_us.mean(axis=1)[self.warmup :]
        most_bytes = (output.window_us[1] - output.window_us[0]) * np.asarray(model["host_bps"]) / 8e6
        if not most_bytes.all():
            raise SimulatorError("a step of one of the jobs takes no time; give it something to compute or to send")
        return Alone(
            float(begin_us[-1] - begin_us[0]) / self.iterations,
            tuple((output.sent_bytes / most_bytes).tolist()),
            tuple((output.received_bytes / most_bytes).tolist()),
        )

    def beside(self, controls: Sequence[Control] | None = None) -> Beside:
        """The jobs at the same time, each under its control. Raises SimulatorError if there are not as many as jobs."""
        controls = [Control()] * len(self.jobs) if controls is None else list(controls)
        if len(controls) != len(self.jobs):
            raise SimulatorError(f"there are {len(controls)} controls for {len(self.jobs)} jobs; give one for each")
        slowest_us = max(alone.iteration_us for alone in self.alone)
        begin_us = max(control.start_us for control in controls) + self.warmup * slowest_us
        end_us = begin_us + self.iterations * slowest_us
        hosts = list(self.host_bps)
        models = []
        for i, (job, control) in enumerate(zip(self.jobs, controls, strict=True)):
            steps = math.ceil(_SPARE * end_us / self.alone[i].iteration_us) + 1
            if steps > MAX_STEPS:
                raise SimulatorError(f"job {job.name!r} makes {steps} steps, more than {MAX_STEPS}; give fewer iterations")
            numbers = [hosts.index(host) for host in job.hosts()]
            models.append(
                {
                    **self._models[i],
                    **dataclasses.asdict(control),
                    "steps": steps,
                    "measured_from": 0,
                    "recorded_from": steps,
                    "compute_scale": job.cluster.compute_factors(steps, self.seed + i),
                    "window_begin_us": begin_us,
                    "window_end_us": end_us,
                    "hosts": len(hosts),
                    "host_bps": list(self.host_bps.values()),
                    "worker_host": [numbers[host] for host in self._models[i]["worker_host"]],
                    "server_host": [numbers[host] for host in self._models[i]["server_host"]],
                }
            )
        return self._result(native.run_jobs(models), begin_us, end_us)

    def _result(self, outputs: list[native.Output], begin_us: float, end_us: float) -> Beside:
        begins = [output.begin_us.mean(axis=1) for output in outputs]
        last_us = min(end_us, *(float(begin[-1]) for begin in begins))
        iteration_us = {}
        for job, begin in zip(self.jobs, begins, strict=True):
            first, last = np.interp([begin_us, last_us], begin, np.arange(len(begin)))
            iteration_us[job.name] = float((last_us - begin_us) / (last - first)) if last > first else math.inf
        utilisation = {}
        for number, (host, bps) in enumerate(self.host_bps.items()):
            if "/" not in host:
                most_bytes = (end_us - begin_us) * bps / 8e6
                sums = [math.fsum(float(o.sent_bytes[number]) for o in outputs)]
                sums.append(math.fsum(float(o.received_bytes[number]) for o in outputs))
                for way, moved in zip(("sending", "receiving"), sums, strict=True):
                    utilisation[f"{host} {way}"] = moved / most_bytes
        names = [job.name for job in self.jobs]
        return Beside(
            iteration_us,
            {n: alone.iteration_us / iteration_us[n] for n, alone in zip(names, self.alone, strict=True)},
            utilisation,
            {name: begin.tolist() for name, begin in zip(names, begins, strict=True)},
            {name: output.pulled_bytes + output.pushed_bytes for name, output in zip(names, outputs, strict=True)},
            max(output.end_us for output in outputs),
        )

    def intensity(self) -> list[float]:
        """Of each job, how long its workers compute for each second in which its busiest link carries its bytes (Crux).

        Infinite where the job uses no link.
        """
        found = []
        for job, alone in zip(self.jobs, self.alone, strict=True):
            used_us = max(*alone.sending, *alone.receiving) * alone.iteration_us
            found.append(job.workload.compute_us * job.cluster.workers / used_us if used_us > 0 else math.inf)
        return found

    def intense_first(self) -> list[Control]:
        """Priorities by intensity: what computes longest for each second on the links is sent first, everywhere."""
        found = self.intensity()
        order = sorted(range(len(found)), key=lambda i: (-found[i], i))
        return [Control(priority=order.index(i)) for i in range(len(found))]

    def bound(self) -> float:
        """What no control's mean speed can be above, if no job gets faster than alone.

        A job at speed x uses x times what it uses alone of each side of a link. Of one side, those that use least of it go
        first until it is full; the least over all sides counts.
        """
        used: dict[tuple[str, str], list[float]] = {}
        for job, alone in zip(self.jobs, self.alone, strict=True):
            for way in ("sending", "receiving"):
                for host, share in zip(job.hosts(), getattr(alone, way), strict=True):
                    used.setdefault((host, way), []).append(min(share, 1.0))
        return min(_most(shares, len(self.jobs)) for shares in used.values())


def _most(shares: list[float], jobs: int) -> float:
    """The largest mean of the jobs' speeds in [0, 1] whose shares of one side, times the speeds, add up to at most 1."""
    left, speed = 1.0, float(jobs - len(shares))  # those that do not use it at all
    for share in sorted(shares):
        part = min(1.0, left / share) if share > 0 else 1.0
        speed += part
        left -= part * share
    return speed / jobs
