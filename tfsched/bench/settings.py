"""The named presets that the bench compares; a registry that later features add to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tfsched._options import AUTO, DEFAULTS, Options
from tfsched.bench.errors import BenchError
from tfsched.errors import TfschedError

STOCK = "grpc"
TFSCHED = "grpc+tfsched"  # equals tfsched.PROTOCOL, which needs the native library to import

SESSION, STRATEGY, MIRRORED, PARALLEL = APIS = ("session", "strategy", "mirrored", "parallel")
# Those without parameter servers.
ALL_REDUCING = (MIRRORED, PARALLEL)
CUSTOM, FIT = LOOPS = ("custom", "fit")


@dataclasses.dataclass(frozen=True)
class Setting:
    """One way to run the same graph.

    Attributes:
        name: what the user writes and the table shows.
        protocol: the protocol of the servers that the session uses.
        options: arguments of `tfsched.Options`; None runs without tfsched's pass.
        needs_plan: whether its ordering needs op times, so a plan is made from traced steps first.
    """

    name: str
    protocol: str
    options: dict[str, Any] | None = None
    needs_plan: bool = False

    @property
    def crosses_barrier(self) -> bool:
        """Whether a step returns before its updates are applied, so that a step's own time says little."""
        return crosses_barrier(self.options)


def crosses_barrier(options: dict[str, Any] | None) -> bool:
    """The same, of `tfsched.Options`' arguments."""
    return options is not None and options.get("barrier") is False


SETTINGS: dict[str, Setting] = {}


def register_setting(setting: Setting) -> Setting:
    """Makes a setting available under its name; a name can be taken once."""
    if setting.name in SETTINGS:
        raise BenchError(f"setting {setting.name!r} is registered twice: choose another name")
    SETTINGS[setting.name] = setting
    return setting


def find_settings(names: Sequence[str]) -> list[Setting]:
    """The settings of that name, in that order and once each.

    A name may be followed by options that differ from the preset's: "tio:credit_bytes=1000000:policy=fifo",
    "bytescheduler:barrier=false".
    """
    if not names:
        raise BenchError(f"no setting given: choose from {', '.join(SETTINGS)}")
    return [_find(name) for name in dict.fromkeys(names)]


def _find(name: str) -> Setting:
    preset, *changes = name.split(":")
    if preset not in SETTINGS:
        raise BenchError(f"setting {preset!r} is unknown: choose from {', '.join(SETTINGS)}")
    setting = SETTINGS[preset]
    if setting.options is None:
        if not changes:
            return setting
        raise BenchError(f"setting {name!r} changes options of {preset!r}, which has none: drop {':'.join(changes)!r}")
    options = dict(setting.options)
    for change in changes:
        option, _, text = change.partition("=")
        options[option] = _value(name, option, text)
    try:
        Options.from_parameters(options)
    except TfschedError as error:
        raise BenchError(f"setting {name!r}: {error}") from None
    if not changes:
        return setting
    return dataclasses.replace(setting, name=name, options=options)


def _value(name: str, option: str, text: str) -> bool | int | str:
    """The option's value in the type that `tfsched.Options` wants; what it does not know stays text."""
    kind = type(DEFAULTS.get(option, ""))
    if kind is bool:
        known = {"true": True, "1": True, "false": False, "0": False}
        if text.lower() not in known:
            raise BenchError(f"setting {name!r}: {option} is {text!r}, give true or false")
        return known[text.lower()]
    if kind is int and text != AUTO:
        try:
            return int(text)
        except ValueError:
            raise BenchError(f"setting {name!r}: {option} is {text!r}, give a whole number") from None
    return text


def for_emulated_link(setting: Setting) -> Setting:
    """The same setting where only tfsched's server can limit the link."""
    if setting.protocol == TFSCHED:
        return setting
    # No pass at all: untagged transfers go out in order of arrival, as on stock servers.
    return dataclasses.replace(setting, protocol=TFSCHED)


# P3 (Jayarajan et al., MLSys 2019), section 5.2: slices of 50,000 parameters, sent one at a time.
P3_PARTITION_BYTES = 50_000 * 4

# ByteScheduler's: pieces small enough to overtake between them, several in flight to keep the link busy (docs/tuning.md).
# With the barrier they only overtake; across it what was pushed in part is pulled in part, which pays for finer pieces, and
# the first layer's way to the server and back, with the credit ahead of it at each hop, is part of every step: so there both
# fit the link.
BYTESCHEDULER_PARTITION_BYTES = 4_000_000
BYTESCHEDULER_CREDIT_BYTES = 2_000_000

_BYTESCHEDULER = {
    "ordering": "tio",
    "policy": "bytescheduler",
    "partition_bytes": BYTESCHEDULER_PARTITION_BYTES,
    "credit_bytes": BYTESCHEDULER_CREDIT_BYTES,
}

register_setting(Setting("vanilla", STOCK))
register_setting(Setting("tio", TFSCHED, {"ordering": "tio", "policy": "tictac"}))
register_setting(Setting("tao", TFSCHED, {"ordering": "tao", "policy": "tictac"}, needs_plan=True))
# Whole transfers in TIO's order; what "tio" is, under the name of the system that it stands for beside the next ones.
register_setting(Setting("tictac", TFSCHED, {"ordering": "tio", "policy": "tictac"}))
register_setting(Setting("p3", TFSCHED, {"ordering": "tio", "policy": "p3", "partition_bytes": P3_PARTITION_BYTES}))
register_setting(Setting("bytescheduler", TFSCHED, _BYTESCHEDULER))
register_setting(
    Setting(
        "bytescheduler+barrier-crossing",
        TFSCHED,
        {"ordering": "tio", "policy": "bytescheduler", "barrier": False},
    )
)

# Prophet's blocks, decided in the core while the training runs, with the same pieces. Below "prophet-plan": the same blocks
# planned from traced steps.
register_setting(Setting("prophet", TFSCHED, {**_BYTESCHEDULER, "policy": "prophet"}))

# Published schedules. Those that need a plan say of all-reduces which gradients go together, and in which order.
register_setting(Setting("fifo", TFSCHED, {"ordering": "fifo", "policy": "bytescheduler", "partition_bytes": 0}))
register_setting(Setting("dear", TFSCHED, {"ordering": "dear", "policy": "bytescheduler"}))
for _name, _planner in (
    ("mg-wfbp", "mg-wfbp"),
    ("prophet-plan", "prophet"),
    ("pace", "pace"),
    ("us-byte", "us-byte"),
    ("dynacomm", "dynacomm"),
    ("buckets", "buckets"),  # tfsched's own, and the proven optimum of a chain of gradients (docs/optimal.md)
    ("optimal", "optimal"),
):
    register_setting(Setting(_name, TFSCHED, {"ordering": _planner, "policy": "bytescheduler"}, needs_plan=True))
