"""The machines that a user names, and which task of the cluster goes to which."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tfsched.bench.errors import BenchError
from tfsched.bench.machines.base import COORDINATION
from tfsched.bench.settings import ALL_REDUCING, STRATEGY

PS, WORKER, CHIEF = ROLES = ("ps", "worker", "chief")
_MOST = 64


@dataclasses.dataclass(frozen=True)
class Place:
    """Where one task runs.

    Attributes:
        host: its name, for whatever starts the task and in messages.
        role: "ps", "worker" or "chief".
        address: at which the others reach it.
        port: the first one of its servers; None leaves the choice to the host.
        start: the command that runs another command on the host, where that is ssh.
        python, directory, environment: of the task; a directory of "" is where the command starts.
    """

    host: str
    role: str
    address: str
    port: int | None = None
    start: tuple[str, ...] = ()
    python: str = "python3"
    directory: str = ""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def assign(places: Sequence[Place], api: str, source: str) -> dict[str, Place]:
    """Machine of the cluster ("ps0", "worker0", ..., COORDINATION) -> its place.

    With `--api strategy` a chief coordinates; without one the first worker's host does. With all other APIs a chief is
    the first worker, as it is for TensorFlow's own strategies.

    Args:
        places: in the order of their tasks.
        api: as of BenchConfig.
        source: where the places are from, for messages.

    Raises:
        BenchError: the API cannot run on such places.
    """
    by_role = {role: [place for place in places if place.role == role] for role in ROLES}
    chiefs, workers, servers = by_role[CHIEF], by_role[WORKER], by_role[PS]
    if len(chiefs) > 1:
        raise BenchError(f"{source} has {len(chiefs)} hosts with role chief: leave one of them")
    if api != STRATEGY:
        workers = [*chiefs, *workers]
    if not workers:
        raise BenchError(f"{source} has no host with role worker: add one")
    if api in ALL_REDUCING:
        if servers:
            raise BenchError(f"{source} has {len(servers)} ps and --api {api} has no parameter servers: leave them out")
        if len(workers) < 2:
            raise BenchError(f"{source} has 1 worker and --api {api} all-reduces between two or more: add another one")
    elif not servers:
        wanted = " or ".join(ALL_REDUCING)
        raise BenchError(f"{source} has no host with role ps and --api {api} needs one: add one, or use --api {wanted}")
    for role, found in ((PS, servers), (WORKER, workers)):
        if len(found) > _MOST:
            raise BenchError(f"{source} has {len(found)} hosts with role {role}: name at most {_MOST}")
    assigned = {f"{PS}{index}": place for index, place in enumerate(servers)}
    assigned |= {f"{WORKER}{index}": place for index, place in enumerate(workers)}
    if api == STRATEGY:
        assigned[COORDINATION] = (chiefs or workers)[0]
    return assigned


def count_of(assigned: Mapping[str, Place], job: str) -> int:
    """How many tasks of a job there are."""
    return sum(1 for name in assigned if name.startswith(job))
