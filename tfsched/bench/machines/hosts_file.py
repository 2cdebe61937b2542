"""Reads the file of `--cluster hosts.yaml`: which hosts there are, and how tasks are started on them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from tfsched.bench.errors import BenchError
from tfsched.bench.machines.places import ROLES, Place

# One for each protocol, and as many for the coordinators of those that have no host of their own.
_SERVERS = 4
_SSH = ["ssh", "-o", "BatchMode=yes"]

# Key -> whether a value fits, and how it is written. Those of all hosts may stand above the hosts, too.
_Rule = tuple[Callable[[Any], bool], str]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _is_word(value: Any) -> bool:
    # A name with a dash in front would be an option of the command that gets it.
    return _is_text(value) and not value.startswith("-") and not any(character.isspace() for character in value)


_COMMON: dict[str, _Rule] = {
    "ssh": (
        lambda value: isinstance(value, list) and bool(value) and all(map(_is_text, value)),
        "a list of words, as in [ssh, -o, BatchMode=yes]",
    ),
    "python": (_is_word, "a command or a path, as in python3"),
    "directory": (_is_text, "a path on the host, as in ~/work"),
    "environment": (
        lambda value: (
            isinstance(value, dict)
            and all(_is_word(key) and "=" not in key and isinstance(item, str | int | float) for key, item in value.items())
        ),
        "variables and their values, as in {OMP_NUM_THREADS: 8}",
    ),
    "port": (
        lambda value: isinstance(value, int) and not isinstance(value, bool) and 1024 <= value <= 65000,
        "a number from 1024 to 65000",
    ),
}
_OF_A_HOST: dict[str, _Rule] = {
    "host": (_is_word, "a name or an address"),
    "role": (lambda value: value in ROLES, f"one of {', '.join(ROLES)}"),
    "address": (_is_word, "a name or an address that the other hosts reach"),
    **_COMMON,
}


def read_places(path: str) -> list[Place]:
    """The hosts of a file, in its order.

    Raises:
        BenchError: it cannot be read, or says something that is not understood.
    """
    content = _read(path)
    if not isinstance(content, dict) or not isinstance(content.get("hosts"), list) or not content["hosts"]:
        raise BenchError(
            f"{path} lists no hosts: write 'hosts:' and below it one '- {{host: NAME, role: ps}}' for each task"
        )
    common = {key: value for key, value in content.items() if key != "hosts"}
    _check(path, common, _COMMON)
    places = [_place(f"{path}, host {number}", common, entry) for number, entry in enumerate(content["hosts"], 1)]
    fixed = sorted((place.host, place.port) for place in places if place.port is not None)
    for (host, port), (next_host, next_port) in itertools.pairwise(fixed):
        if host == next_host and next_port - port < _SERVERS:
            raise BenchError(
                f"{path} gives host {host!r} the ports {port} and {next_port}: a task may take {_SERVERS} ports from "
                f"its own on, so keep them {_SERVERS} apart"
            )
    return places


def _read(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return yaml.safe_load(file)
    except UnicodeDecodeError:
        raise BenchError(f"{path} is not UTF-8 text: give a YAML file") from None
    except OSError as error:
        raise BenchError(f"{path} cannot be read ({error.strerror}): give a YAML file, slurm or tf_config") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise BenchError(f"{path} is not YAML ({' '.join(str(error).split())}): check the file") from None


def _check(where: str, given: Mapping[Any, Any], rules: Mapping[str, _Rule]) -> None:
    for key, value in given.items():
        if key not in rules:
            raise BenchError(f"{where} has the unknown key {key!r}: use {', '.join(rules)}")
        fits, form = rules[key]
        if not fits(value):
            raise BenchError(f"{where} has {value!r} as {key}: give {form}")


def _place(where: str, common: Mapping[str, Any], entry: Any) -> Place:
    if not isinstance(entry, dict):
        raise BenchError(f"{where} is {entry!r}: write it as {{host: NAME, role: worker}}")
    _check(where, entry, _OF_A_HOST)
    for key, example in (("host", "host: node1"), ("role", "role: ps, role: worker or role: chief")):
        if key not in entry:
            named = f" ({entry['host']})" if "host" in entry else ""
            raise BenchError(f"{where}{named} has no {key}: add '{example}'")
    given = {**common, **entry}
    environment = {**common.get("environment", {}), **entry.get("environment", {})}
    return Place(
        host=entry["host"],
        role=entry["role"],
        address=entry.get("address", entry["host"].rpartition("@")[2]),
        port=given.get("port"),
        start=tuple(given.get("ssh", _SSH)),
        python=given.get("python", "python3"),
        directory=given.get("directory", ""),
        environment={key: str(value) for key, value in environment.items()},
    )
