"""The named presets that the bench compares; a registry that later features add to."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tfsched.bench.errors import BenchError
from tfsched.errors import TfschedError
from tfsched.options import Options

STOCK = "grpc"
TFSCHED = "grpc+tfsched"  # equals tfsched.PROTOCOL, which needs the native library to import


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


SETTINGS: dict[str, Setting] = {}


def register_setting(setting: Setting) -> Setting:
    """Makes a setting available under its name; a name can be taken once."""
    if setting.name in SETTINGS:
        raise BenchError(f"setting {setting.name!r} is registered twice: choose another name")
    SETTINGS[setting.name] = setting
    return setting


def find_settings(names: Sequence[str]) -> list[Setting]:
    """The settings of that name, in that order and once each.

    A name may be followed by options that differ from the preset's: "tio:credit_bytes=1000000:policy=fifo".
    """
    if not names:
        raise BenchError(f"no setting given: choose from {', '.join(SETTINGS)}")
    return [_find(name) for name in dict.fromkeys(names)]


def _find(name: str) -> Setting:
    preset, *changes = name.split(":")
    if preset not in SETTINGS:
        raise BenchError(f"setting {preset!r} is unknown: choose from {', '.join(SETTINGS)}")
    setting = SETTINGS[preset]
    if not changes:
        return setting
    if setting.options is None:
        raise BenchError(f"setting {name!r} changes options of {preset!r}, which has none: drop {':'.join(changes)!r}")
    options = dict(setting.options)
    for change in changes:
        option, _, text = change.partition("=")
        options[option] = int(text) if text.lstrip("-").isdigit() else text
    try:
        Options.from_parameters(options)
    except TfschedError as error:
        raise BenchError(f"setting {name!r}: {error}") from None
    return dataclasses.replace(setting, name=name, options=options)


def for_emulated_link(setting: Setting) -> Setting:
    """The same setting where only tfsched's server can limit the link."""
    if setting.protocol == TFSCHED:
        return setting
    # No pass at all: untagged transfers go out in order of arrival, as on stock servers.
    return dataclasses.replace(setting, protocol=TFSCHED)


register_setting(Setting("vanilla", STOCK))
register_setting(Setting("tio", TFSCHED, {"ordering": "tio", "policy": "tictac"}))
register_setting(Setting("tao", TFSCHED, {"ordering": "tao", "policy": "tictac"}, needs_plan=True))
