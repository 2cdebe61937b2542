"""The results: runs the commands of benchmarks/results/manifest.yaml, and writes every page that shows what was measured.

    python benchmarks/results.py --measure allreduce-mlp24,allreduce-resnet50
    python benchmarks/results.py --predict allreduce-planners,servers-planners-crossing
    python benchmarks/results.py

The first runs the commands of these rows and keeps their JSON beside the manifest; it needs root, for limited links. The
second predicts kept rows again, with the simulator as it is, from what the runs measured and traced. The last (`make
results`) only writes docs/results.md, the README's table, its picture, the table of PACE in docs/papers.md and that of
predictions in docs/simulator.md from the JSON files: no figure is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.evaluations import pace_wire  # noqa: E402
from benchmarks.evaluations.common import markdown  # noqa: E402
from tfsched.bench import busy, inputs, predicting  # noqa: E402

KEPT = pathlib.Path(__file__).with_name("results")
INPUTS = KEPT / "inputs"  # what the predictions of a row are made from, in a directory of its name
PAGE = ROOT / "docs" / "results.md"
README = ROOT / "README.md"
PAPERS = ROOT / "docs" / "papers.md"
SIMULATOR = ROOT / "docs" / "simulator.md"
PICTURE = ROOT / "docs" / "images" / "results.svg"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
LIMIT_S = 3600
NEAR = 0.05  # of what was measured: what is predicted for nearer settings is not told one by one
_GRACE_S = 60
_PLANNERS = (
    *("vanilla", "fifo", "tio", "bytescheduler", "p3", "prophet"),
    *("mg-wfbp", "prophet-plan", "pace", "dear", "us-byte", "buckets", "optimal"),
)
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


def interrupt(number: int, frame: object) -> None:
    """Ends the program as Ctrl-C does."""
    raise KeyboardInterrupt


def _run(command: list[str]) -> None:
    """Runs a bench. If this program is interrupted, the bench ends its tasks and takes its namespaces away first."""
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            code = process.wait(LIMIT_S)
        except BaseException:
            process.terminate()
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    if code:
        raise subprocess.CalledProcessError(code, command)


def bench(command: str, path: pathlib.Path) -> list[dict[str, Any]]:
    """What `tfsched bench COMMAND` finds, without what no reader of a figure needs; it may write to `path` meanwhile.

    Raises:
      subprocess.SubprocessError: it failed, or took more than an hour.
    """
    main = "import sys; from tfsched.cli import main; sys.exit(main())"
    try:
        _run([sys.executable, "-c", main, "bench", *shlex.split(command), "--json", str(path)])
        found = json.loads(path.read_text())
    finally:
        path.unlink(missing_ok=True)
    results = [found] if isinstance(found, dict) else found
    for result in results:
        for setting in result["settings"].values():
            setting["stolen"] = sum(setting["stolen_s"]) / max(sum(setting["steps_s"]), 1e-9)
            for key in _DROPPED:
                setting.pop(key, None)
    return results


def measure(row: Row) -> None:
    """Runs the row's command and keeps its results.

    Raises:
      subprocess.SubprocessError: it failed, or took more than an hour.
    """
    predicts = "--predict" in row.command.split()
    INPUTS.mkdir(exist_ok=True)
    command = f"{row.command} --inputs {shlex.quote(str(INPUTS / row.name))}" if predicts else row.command
    _keep(row, {"command": row.command, "results": bench(command, KEPT / f"{row.name}.tmp.json")})


def predict(row: Row) -> bool:
    """Predicts a kept row again; whether it has what that takes.

    Raises:
      TfschedError: it has, and that cannot be used.
    """
    content = kept(row)
    paths = [
        inputs.path_of(str(INPUTS / row.name), one["model"], one["workers"])
        for one in (content or {"results": ()})["results"]
    ]
    if content is None or not all(os.path.exists(path) for path in paths):
        return False
    for result, path in zip(content["results"], paths, strict=True):
        predicting.add_to(result, *inputs.load(path))
        result["notes"] = list(dict.fromkeys(result["notes"]))
    _keep(row, content)
    return True


def _keep(row: Row, content: dict[str, Any]) -> None:
    (KEPT / f"{row.name}.json").write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


def _order(command: str) -> list[str]:
    """The settings as the command names them; stock TensorFlow first, as in the bench's own table."""
    words = shlex.split(command)
    return words[words.index("--settings") + 1].split(",")


def hosts(result: Mapping[str, Any]) -> str:
    workers, servers = result["workers"], result["ps"]
    text = f"{workers} workers" if workers > 1 else "1 worker"
    return text + (f", {servers} parameter server{'s' * (servers > 1)}" if servers else "")


def link(bits_per_s: float | None) -> str:
    if bits_per_s is None:
        return "unlimited"
    return f"{bits_per_s / 1e9:g} Gbit/s" if bits_per_s >= 1e9 else f"{bits_per_s / 1e6:g} Mbit/s"


def table(result: Mapping[str, Any], order: Sequence[str]) -> list[str]:
    """One cluster's rows: the bounds, then the settings."""
    bounds, lower_s = result["bounds"], result["bounds"]["lower_s"]
    batch = "" if result["batch"] is None else f", batch {result['batch']}"
    predicted = any("predicted_s" in setting for setting in result["settings"].values())
    more = " predicted | error |" if predicted else ""
    lines = [
        f"{result['model']}, {hosts(result)}{batch}:",
        "",
        f"| | seconds a step | of the bound | gain |{more}",
        "|---|---|---|---|" + ("---|---|" if predicted else ""),
    ]
    parts = [("computing alone", "compute_s"), ("computing beside communication", "beside_s")]
    parts += [("joining and splitting gradients", "join_s"), ("pulling and pushing at once", "both_s")]
    parts += [("tfsched's all-reduce alone", "exchange_s"), ("the same in p3's pieces", "pieces_s")]
    parts += [("the link's share", "closed_form_s"), ("pulling alone", "pull_s")]
    parts += [("pushing alone", "push_s"), ("the same bytes over TCP", "tcp_s"), ("stock all-reduce alone", "all_reduce_s")]
    for what, key in parts:
        if bounds.get(key) is not None:
            lines.append(f"| {what} | {bounds[key]:.3f} | {bounds[key] / lower_s:.2f} | |" + (" | |" if predicted else ""))
    for name in order:
        setting = result["settings"][name]
        gain = "" if name == "vanilla" else f"{setting['ratio_to_vanilla']:.2f}x"
        shown = _shown(name)
        ratio, ends = f"{setting['bound_ratio']:.2f}", f"{setting['bound_ratio_with_ends']:.2f}"
        ratio += f" ({ends} with ends)" if ends != ratio else ""
        row = f"| {shown} | {setting['median_s']:.3f} | {ratio} | {gain} |"
        if predicted:
            step_s = setting["predicted_s"]
            row += " | |" if step_s is None else f" {step_s:.3f} | {setting['prediction_error']:+.1%} |"
        lines.append(row)
    most = max(setting["stolen"] for setting in result["settings"].values())
    if most >= 0.02:
        lines += ["", f"The machine's host gave up to {most:.0%} of a setting's time to other guests."]
    for note in [*busy.note(result["settings"]), *predicting.note(result["settings"])]:
        lines += ["", f"{note[0].upper()}{note[1:]}."]
    return [*lines, ""]


def planners_table(rows: Sequence[Row]) -> list[str]:
    """Steps across the barrier under the schedules of several systems: over the bound, and how far off the prediction is.

    Of all rows that compare them; a line for each model, number of hosts and link.
    """
    lines: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        found = kept(row)
        names = _order(row.command)
        if found is None or not {"mg-wfbp:barrier=false", "optimal:barrier=false"} <= set(names):
            continue
        for result in found["results"]:
            cells = lines.setdefault((hosts(result), result["model"], link(result["bandwidth_bps"])), {})
            for name in names:
                setting = result["settings"][name]
                error = setting.get("prediction_error")
                shown = "" if error is None else f", {error:+.0%}".replace("-0%", "0%").replace("+0%", "0%")
                cells[_base(name)] = f"{setting['bound_ratio']:.2f}{shown}"
    used = [name for name in _PLANNERS if any(name in cells for cells in lines.values())]
    heads = ["stock" if name == "vanilla" else f"`{name}`" for name in used]
    table = [f"| | model | link | {' | '.join(heads)} |", "|---" * (3 + len(used)) + "|"]
    table += [
        f"| {' | '.join(key)} | {' | '.join(cells.get(name, '') for name in used)} |" for key, cells in sorted(lines.items())
    ]
    return table


def _base(name: str) -> str:
    """The setting's name without its options."""
    return name.partition(":")[0].partition("+")[0]


def render(rows: Sequence[Row]) -> str:
    """The page, of the rows that have been measured."""
    lines = [(KEPT / "introduction.md").read_text()]
    lines += [
        "## Schedules of several systems",
        "",
        "Training across the barrier: the step over the bound, and by how much the simulator predicts it longer (+) or",
        "shorter (-). The rows are below, with the options of each setting.",
        "",
        *planners_table(rows),
        "",
    ]
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


class Line(NamedTuple):
    """One line of the README's table and picture; times in seconds a step."""

    model: str
    setting: str
    link: str
    stock_s: float
    ours_s: float
    bound_s: float


def readme_lines(rows: Sequence[Row], path: pathlib.Path = KEPT / "manifest.yaml") -> list[Line]:
    """Those of the chosen ones that have been measured."""
    by_name = {row.name: row for row in rows}
    lines = []
    for line in yaml.safe_load(path.read_text())["readme"]:
        found = kept(by_name[line["row"]])
        for result in found["results"] if found else []:
            if (result["model"], result["workers"]) != (line["model"], line.get("workers", result["workers"])):
                continue
            stock, ours = result["settings"]["vanilla"], result["settings"][line["setting"]]
            model = result["model"] + (", forward pass" if result["phase"] == "forward" else "")
            times = (stock["median_s"], ours["median_s"], result["bounds"]["lower_s"])
            lines.append(Line(model, f"{line['title']}, {hosts(result)}", link(result["bandwidth_bps"]), *times))
    return lines


def readme_table(lines: Sequence[Line]) -> str:
    """The README's table."""
    rows = ["| model | setting | link | stock | tfsched | gain | of the bound |", "|---|---|---|---|---|---|---|"]
    for line in lines:
        cells = [line.model, line.setting, line.link, f"{line.stock_s:.2f} s", f"{line.ours_s:.2f} s"]
        cells += [f"{line.stock_s / line.ours_s:.2f}x", f"{line.bound_s / line.ours_s:.0%}"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def picture(lines: Sequence[Line]) -> str:
    """The same lines as bars, in SVG."""
    height, left, right = 50, 330, 870
    scale = (right - left - 60) / max(line.stock_s for line in lines)
    total = height * len(lines) + 40
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right} {total}" font-family="sans-serif">']
    parts.append(f'<rect width="{right}" height="{total}" fill="#fff"/>')
    for number, line in enumerate(lines):
        top, bound = height * number + 10, left + scale * line.bound_s
        parts.append(f'<text x="8" y="{top + 15}" font-size="14">{line.model}, {line.link}</text>')
        parts.append(f'<text x="8" y="{top + 33}" font-size="12" fill="#555">{line.setting.replace("`", "")}</text>')
        for seconds, y, colour in ((line.stock_s, top, "#9e9e9e"), (line.ours_s, top + 19, "#3f51b5")):
            end = left + scale * seconds
            parts.append(f'<rect x="{left}" y="{y}" width="{end - left:.1f}" height="17" fill="{colour}"/>')
            parts.append(f'<text x="{end + 5:.1f}" y="{y + 13}" font-size="12">{seconds:.2f} s</text>')
        parts.append(f'<path d="M{bound:.1f} {top - 3}v42" stroke="#d32f2f" stroke-width="2"/>')
    bottom = height * len(lines) + 28
    for x, colour, text in (
        (left, "#9e9e9e", "stock TensorFlow"),
        (left + 150, "#3f51b5", "tfsched"),
        (left + 240, "#d32f2f", "bound"),
    ):
        parts.append(f'<rect x="{x}" y="{bottom - 11}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="{bottom}" font-size="12">{text}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def with_table(text: str, table: str) -> str:
    """`text` with `table` between the two marker lines.

    Raises:
      ValueError: a marker is missing.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"a page lacks {BEGIN} or {END}; put both around its table of results")
    return f"{before}{begin}\n{table}\n{end}{after}"


def predictions_table(rows: Sequence[Row]) -> str:
    """How near the simulator comes, a line for each row that was predicted."""
    lines = [
        "",
        "| row | | predicted by | settings | median error | within 5 % | others, too short (-) or too long |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        results = (kept(row) or {"results": []})["results"]
        errors = {
            (result["model"], name): setting["prediction_error"]
            for result in results
            for name, setting in result["settings"].items()
            if setting.get("prediction_error") is not None
        }
        if not errors:
            continue
        far = [(model, name, error) for (model, name), error in errors.items() if abs(error) > NEAR]
        others = ", ".join(
            f"{_shown(name)} with {model} {error:+.0%}" for model, name, error in sorted(far, key=lambda one: -abs(one[2]))
        )
        about = f"{hosts(results[0])}, {link(results[0]['bandwidth_bps'])}"
        typical = statistics.median(map(abs, errors.values()))
        simulator = "this simulator" if (INPUTS / row.name).is_dir() else "an older one"
        cells = [f"`{row.name}`", about, simulator, str(len(errors)), f"{typical:.1%}", str(len(errors) - len(far)), others]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _shown(name: str) -> str:
    return "stock TensorFlow" if name == "vanilla" else f"`{name}`"


def papers_table() -> str:
    return "\n" + markdown(pace_wire.HEADER, pace_wire.measured()) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", default="", help="names of rows to measure, with commas; all: every one")
    parser.add_argument("--predict", default="", help="names of kept rows to predict again, with commas; all: every one")
    given = parser.parse_args()
    rows = manifest()
    names = [row.name for row in rows]
    measured, predicted = ([*names] if text == "all" else text.split(",") for text in (given.measure, given.predict))
    if unknown := [name for name in [*measured, *predicted] if name and name not in names]:
        parser.error(f"no row is named {unknown[0]}; the rows are {', '.join(names)}")
    signal.signal(signal.SIGTERM, interrupt)
    for row in rows:
        if row.name in measured:
            measure(row)
        if row.name in predicted and not predict(row) and given.predict != "all":
            parser.error(f"the predictions of row {row.name} cannot be made again; measure it with --measure {row.name}")
    PAGE.write_text(render(rows))
    lines = readme_lines(rows)
    PICTURE.write_text(picture(lines))
    README.write_text(with_table(README.read_text(), readme_table(lines)))
    PAPERS.write_text(with_table(PAPERS.read_text(), papers_table()))
    SIMULATOR.write_text(with_table(SIMULATOR.read_text(), predictions_table(rows)))


if __name__ == "__main__":
    main()
