"""Finds what a directory holds for a report: measurements, traces, DAGs, layer tables, simulations and sweeps."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

from tfsched.commands import inputs
from tfsched.commands.files import FileError, parse_json, read_bytes

# What the report itself writes.
PLAN = "recommended-plan.json"
SUFFIXES = (".json", ".json.gz", ".csv", ".csv.gz", ".pb", ".pb.gz", ".pbtxt")
MAX_FILES = 200


@dataclasses.dataclass
class Found:
    """What was found, by file name, and why the other files were left out.

    Attributes:
      benches: results of ``tfsched bench``, one a model.
      sources: traces, DAGs and layer tables.
      simulations: results of ``tfsched simulate``.
      sweeps: results of ``tfsched sweep``.
      unused: file name -> reason.
    """

    benches: list[tuple[str, dict[str, Any]]] = dataclasses.field(default_factory=list)
    sources: list[tuple[str, Any]] = dataclasses.field(default_factory=list)
    simulations: list[tuple[str, dict[str, Any]]] = dataclasses.field(default_factory=list)
    sweeps: list[tuple[str, dict[str, Any]]] = dataclasses.field(default_factory=list)
    unused: dict[str, str] = dataclasses.field(default_factory=dict)

    def anything(self) -> bool:
        return bool(self.benches or self.sources or self.simulations or self.sweeps)


def collect(directory: str) -> Found:
    """Reads every file of the directory whose name ends as those that tfsched writes. Raises FileError for no directory."""
    folder = pathlib.Path(directory)
    if not folder.is_dir():
        raise FileError(f"{directory} is not a directory; give the one that holds benches, traces, DAGs or sweeps.")
    found = Found()
    try:
        paths = sorted(
            path for path in folder.iterdir() if path.name.endswith(SUFFIXES) and path.name != PLAN and path.is_file()
        )
    except OSError as error:
        raise FileError(f"{directory} cannot be read ({error.strerror}); check its permissions.") from None
    for path in paths[MAX_FILES:]:
        found.unused[path.name] = f"more than {MAX_FILES} files"
    for path in paths[:MAX_FILES]:
        try:
            _sort_in(found, path)
        except ValueError as error:
            # The errors that a user's file can cause are of classes of their own, as in tfsched.cli.
            if type(error) is ValueError or isinstance(error, UnicodeError):
                raise
            found.unused[path.name] = str(error)
    return found


def _sort_in(found: Found, path: pathlib.Path) -> None:
    content = read_bytes(str(path))
    name = path.name
    if content[:64].lstrip()[:1] not in (b"{", b"["):
        if content.startswith(b"bandwidth_bps,"):
            found.unused[name] = "the CSV of a sweep; its JSON (--out) is what a report reads"
        else:
            found.sources.append((name, inputs.read_file(str(path))))
        return
    data = parse_json(content, name)
    results = data if isinstance(data, list) else [data]
    if results and all(_is_bench(result) for result in results):
        found.benches.extend((name, result) for result in results)
        return
    kind = data.get("format") if isinstance(data, dict) else None
    if kind == "tfsched-simulation/1":
        _check(data, name, methods=dict, what=str, description=str)
        for method in data["methods"].values():
            _check_numbers(method, name)
        found.simulations.append((name, data))
    elif kind == "tfsched-sweep/1":
        _check(data, name, rows=list, what=str)
        for row in data["rows"]:
            _check_row(row, name)
        found.sweeps.append((name, data))
    elif kind == "tfsched-plan/1":
        found.unused[name] = "a plan; a report is made from what plans are made of"
    else:
        source = inputs.from_json(data)
        if getattr(source, "exchanges", ()):
            found.unused[name] = "a trace of all-reduces, which is not simulated; 'tfsched order' makes plans of it"
        else:
            found.sources.append((name, source))


def _is_bench(result: Any) -> bool:
    if not isinstance(result, dict) or not isinstance(result.get("settings"), dict):
        return False
    if not isinstance(result.get("bounds"), dict) or not isinstance(result.get("model"), str):
        return False
    return all(
        isinstance(row, dict) and _numbers(row.get("steps_s")) and row["steps_s"] for row in result["settings"].values()
    )


def _numbers(values: Any) -> bool:
    return isinstance(values, list) and all(_is_number(value) for value in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _check(data: dict[str, Any], name: str, **kinds: type) -> None:
    for key, kind in kinds.items():
        if not isinstance(data.get(key), kind):
            raise FileError(f"{name} has no {key!r}, or it is of the wrong kind; write the file again.")


def _check_numbers(method: Any, name: str) -> None:
    if not isinstance(method, dict) or not _numbers(method.get("iteration_us")) or not method["iteration_us"]:
        raise FileError(f"{name} has a method without iteration times; write the file again.")


def _check_row(row: Any, name: str) -> None:
    wanted = ("bandwidth_bps", "workers", "median_us")
    if (
        not isinstance(row, dict)
        or not isinstance(row.get("method"), str)
        or not all(_is_number(row.get(k)) for k in wanted)
    ):
        raise FileError(f"{name} has a row that is none of a sweep's; write the file again.")
    if row.get("samples_per_s") is not None and not _is_number(row["samples_per_s"]):
        raise FileError(f"{name} has a row whose samples_per_s is no number; write the file again.")
