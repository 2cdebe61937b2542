"""Methods that are compared: an ordering, a policy of cc/core, pieces, credit and the barrier, under one name."""

from __future__ import annotations

import dataclasses

from tfsched.ordering import Plan, _checks, registry
from tfsched.ordering._checks import show

from . import native
from .errors import SimulatorError

VIEWS = ("pulls", "gradients")

# tfsched.Options' default, and the bench's settings.
_CREDIT_BYTES = 1_000_000
_P3_PARTITION_BYTES = 200_000
_BYTESCHEDULER_PARTITION_BYTES = 4_000_000
_BYTESCHEDULER_CREDIT_BYTES = 2_000_000
# Orderings that decide about gradients as they are made.
_PLANNERS = ("buckets", "bytescheduler", "dynacomm", "mg-wfbp", "optimal", "p3", "pace", "prophet", "us-byte")


@dataclasses.dataclass(frozen=True)
class Method:
    """How transfers are scheduled.

    Attributes:
      name: what tables show.
      ordering: a registered ordering; None: no order, pulls are asked for in another random order in each step and sent as
        they come, as stock TensorFlow does.
      policy: one of docs/policies.md; None: what the ordering decides, else "tictac".
        All-reduces under "tictac" go by "bytescheduler", for gradients come one by one.
      partition_bytes: pieces are at most so large, 0 for whole; None: what the ordering decides.
      credit_bytes: bytes handed over and not yet released, 0 for no limit; None: what the ordering decides, else 1 MB.
      barrier: None for the cluster's.
      groups: parameters that travel as one message; empty: what the ordering decides.
      plan: a `Plan` whose priorities, groups and pieces are sent. The ordering ranks what it does not name, behind the rest.
      view: the DAG that the ordering sees, "pulls" (`Workload.pull_dag`) or "gradients" (`Workload.gradient_dag`). With ring
        all-reduce it is always "gradients", in phase "forward" always "pulls".

    Raises SimulatorError for a value that is not one of these. The ordering's name is looked up when it is used.
    """

    name: str
    ordering: str | None = None
    policy: str | None = None
    partition_bytes: int | None = None
    credit_bytes: int | None = None
    barrier: bool | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    view: str = "pulls"
    plan: Plan | None = None

    def __post_init__(self) -> None:
        _checks.name(self.name, "a method's name", SimulatorError)
        if self.policy is not None and self.policy not in native.policies():
            raise SimulatorError(
                f"the policy of method {self.name!r} is {show(self.policy)}; give one of {', '.join(native.policies())}"
            )
        for field in ("partition_bytes", "credit_bytes"):
            value = getattr(self, field)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53):
                raise SimulatorError(
                    f"the {field} of method {self.name!r} is {show(value)}; give a whole number from 0 to 2^53"
                )
        if self.barrier is not None and not isinstance(self.barrier, bool):
            raise SimulatorError(f"the barrier of method {self.name!r} is {show(self.barrier)}; give true or false")
        if self.plan is not None and not isinstance(self.plan, Plan):
            raise SimulatorError(f"the plan of method {self.name!r} is {show(self.plan)}; give a Plan or None")
        if self.view not in VIEWS:
            raise SimulatorError(f"the view of method {self.name!r} is {show(self.view)}; give one of {', '.join(VIEWS)}")


def methods() -> dict[str, Method]:
    """The presets by name: stock TensorFlow, the published systems, and every registered ordering, plugins' too.

    An ordering that is not listed here goes whole under "tictac" and 1 MB of credit, unless it decides otherwise itself.
    """
    registered = registry.names()
    index = "bytescheduler" if "bytescheduler" in registered else "layer"
    presets = {
        "vanilla": Method("vanilla", None, "fifo"),
        "fifo": Method("fifo", "fifo", "fifo"),
        "random": Method("random", "random"),
        "layer": Method("layer", "layer"),
        "tio": Method("tio", "tio"),
        "tao": Method("tao", "tao"),
        "p3": Method("p3", "p3" if "p3" in registered else "layer", "p3", _P3_PARTITION_BYTES, view="gradients"),
        "bytescheduler": Method(
            "bytescheduler",
            index,
            "bytescheduler",
            _BYTESCHEDULER_PARTITION_BYTES,
            _BYTESCHEDULER_CREDIT_BYTES,
            view="gradients",
        ),
    }
    crossing = dataclasses.replace(presets["bytescheduler"], name="bytescheduler+barrier-crossing", barrier=False)
    presets[crossing.name] = crossing
    for name in _PLANNERS:
        if name in registered and name not in presets:
            presets[name] = Method(name, name, view="gradients")
    for name in registered:
        presets.setdefault(name, Method(name, name))
    return presets
