"""The results: runs the commands of benchmarks/results/manifest.yaml, and writes docs/results.md and the README's table.

    python benchmarks/results.py --measure allreduce-mlp24,allreduce-resnet50
    python benchmarks/results.py

The first runs the commands of these rows and keeps their JSON beside the manifest; it needs root, for limited links. The
second (`make results`) only writes the page and the table from the JSON files, so that no figure is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

KEPT = pathlib.Path(__file__).with_name("results")
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
LIMIT_S = 3600
# What a figure's reader does not need: step by step, and of the machine that measured.
_DROPPED = ("steps_s", "stolen_s", "plots")


class Row(NamedTuple):
    """One entry of the manifest: `command` is what follows `tfsched bench`."""

    name: str
    section: str
    title: str
    command: str
    note: str


def manifest(path: pathlib.Path = KEPT / "manifest.yaml") -> list[Row]:
    """The rows in their order.

    Raises:
      ValueError: a name is there twice.
    """
    rows = []
    for section in yaml.safe_load(path.read_text())["sections"]:
        for row in section["rows"]:
            command = " ".join(row["command"].split())
            rows.append(Row(row["name"], section["title"], row["title"], command, row.get("note", "")))
    names = [row.name for row in rows]
    if len(set(names)) < len(names):
        raise ValueError(f"{path} has two rows of one name; give each its own")
    return rows


def kept(row: Row) -> dict[str, Any] | None:
    """What was measured: the command that did it, and the bench's results; None where nothing was."""
    path = KEPT / f"{row.name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def measure(row: Row) -> None:
    """Runs the row's command and keeps its results.

    Raises:
      subprocess.SubprocessError: it failed, or took more than an hour.
    """
    path = KEPT / f"{row.name}.tmp.json"
    main = "import sys; from tfsched.cli import main; sys.exit(main())"
    try:
        command = [sys.executable, "-c", main, "bench", *shlex.split(row.command), "--json", str(path)]
        subprocess.run(command, check=True, timeout=LIMIT_S, cwd=ROOT)
        found = json.loads(path.read_text())
    finally:
        path.unlink(missing_ok=True)
    results = [found] if isinstance(found, dict) else found
    for result in results:
        for setting in result["settings"].values():
            setting["stolen"] = sum(setting["stolen_s"]) / max(sum(setting["steps_s"]), 1e-9)
            for key in _DROPPED:
                setting.pop(key, None)
    content = {"command": row.command, "results": results}
    (KEPT / f"{row.name}.json").write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def _order(command: str) -> list[str]:
    """The settings as the command names them; stock TensorFlow first, as in the bench's own table."""
    words = shlex.split(command)
    return words[words.index("--settings") + 1].split(",")


def _hosts(result: Mapping[str, Any]) -> str:
    workers, servers = result["workers"], result["ps"]
    text = f"{workers} workers" if workers > 1 else "1 worker"
    return text + (f", {servers} parameter server{'s' * (servers > 1)}" if servers else "")


def _link(bits_per_s: float | None) -> str:
    if bits_per_s is None:
        return "unlimited"
    return f"{bits_per_s / 1e9:g} Gbit/s" if bits_per_s >= 1e9 else f"{bits_per_s / 1e6:g} Mbit/s"


def table(result: Mapping[str, Any], order: Sequence[str]) -> list[str]:
    """One cluster's rows: the bounds, then the settings."""
    bounds, lower_s = result["bounds"], result["bounds"]["lower_s"]
    batch = "" if result["batch"] is None else f", batch {result['batch']}"
    lines = [
        f"{result['model']}, {_hosts(result)}{batch}:",
        "",
        "| | seconds a step | of the bound | gain |",
        "|---|---|---|---|",
    ]
    parts = [("computing alone", "compute_s"), ("the link's share", "closed_form_s"), ("pulling alone", "pull_s")]
    parts += [("pushing alone", "push_s"), ("the same bytes over TCP", "tcp_s"), ("stock all-reduce alone", "all_reduce_s")]
    for what, key in parts:
        if bounds.get(key) is not None:
            lines.append(f"| {what} | {bounds[key]:.3f} | {bounds[key] / lower_s:.2f} | |")
    for name in order:
        setting = result["settings"][name]
        gain = "" if name == "vanilla" else f"{setting['ratio_to_vanilla']:.2f}x"
        shown = "stock TensorFlow" if name == "vanilla" else f"`{name}`"
        ratio, ends = f"{setting['bound_ratio']:.2f}", f"{setting['bound_ratio_with_ends']:.2f}"
        ratio += f" ({ends} with ends)" if ends != ratio else ""
        lines.append(f"| {shown} | {setting['median_s']:.3f} | {ratio} | {gain} |")
    most = max(setting["stolen"] for setting in result["settings"].values())
    if most >= 0.02:
        lines += ["", f"The machine's host gave up to {most:.0%} of a setting's time to other guests."]
    return [*lines, ""]


def render(rows: Sequence[Row]) -> str:
    """The page, of the rows that have been measured."""
    lines = [(KEPT / "introduction.md").read_text()]
    section = None
    for row in rows:
        found = kept(row)
        if found is None:
            continue
        if row.section != section:
            section = row.section
            lines += [f"## {section}", ""]
        versions = ", ".join(sorted({result["tensorflow"] for result in found["results"]}))
        lines += [
            f"### {row.title}",
            "",
            f"    tfsched bench {found['command']}",
            "",
            f"Row `{row.name}`, TensorFlow {versions}.",
            "",
        ]
        for result in found["results"]:
            lines += table(result, _order(found["command"]))
        if row.note:
            lines += [row.note, ""]
    return "\n".join(lines).rstrip() + "\n"


def readme_table(rows: Sequence[Row], path: pathlib.Path = KEPT / "manifest.yaml") -> str:
    """The README's table: the chosen lines that have been measured."""
    by_name = {row.name: row for row in rows}
    lines = ["| training | link | stock | tfsched | gain | of the bound |", "|---|---|---|---|---|---|"]
    for line in yaml.safe_load(path.read_text())["readme"]:
        found = kept(by_name[line["row"]])
        if found is None:
            continue
        for result in found["results"]:
            if (result["model"], result["workers"]) != (line["model"], line.get("workers", result["workers"])):
                continue
            setting, bits = result["settings"][line["setting"]], result["bandwidth_bps"]
            link = "unlimited" if bits is None else f"{bits / 1e9:g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:g} Mbit/s"
            cells = [f"{line['title']}, {_hosts(result)}", link, f"{result['settings']['vanilla']['median_s']:.2f} s"]
            cells += [
                f"{setting['median_s']:.2f} s",
                f"{setting['ratio_to_vanilla']:.2f}x",
                f"{1 / setting['bound_ratio']:.0%}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def with_table(text: str, table: str) -> str:
    """`text` with `table` between the two marker lines.

    Raises:
      ValueError: a marker is missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"README.md lacks {BEGIN} or {END}; put both around its table of results")
    return f"{before}{begin}\n{table}\n{end}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", default="", help="names of rows to measure, with commas; all: every one")
    wanted = parser.parse_args().measure
    rows = manifest()
    names = [row.name for row in rows]
    chosen = names if wanted == "all" else [name for name in wanted.split(",") if name]
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"no row is named {unknown[0]}; the rows are {', '.join(names)}")
    for row in rows:
        if row.name in chosen:
            measure(row)
    PAGE.write_text(render(rows))
    README.write_text(with_table(README.read_text(), readme_table(rows)))


if __name__ == "__main__":
    main()
