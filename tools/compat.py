"""`make compat`: installs the wheel of `make wheels` beside TensorFlow releases, tries it, writes docs/compatibility.md.

    python -m tools.compat WHEEL [VERSION...]    the last patch release of each minor version in the wheel, or those named

Each release gets an environment of its own in build/compat, made by nothing but `pip install`, which is removed afterwards.
The table says what this run has seen and nothing else.
"""

from __future__ import annotations

import pathlib
import platform
import re
import shutil
import subprocess
import sys
import time
import zipfile

from tools import native, releases
from tools.native import ROOT
from tools.try_wheel import Outcome, check, run

PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- compat: written by make compat -->", "<!-- compat: end -->"
_WORK = ROOT / "build" / "compat"


def releases_in(wheel: pathlib.Path) -> list[str]:
    """The TensorFlow releases that a wheel has a library for."""
    with zipfile.ZipFile(wheel) as archive:
        found = (re.fullmatch(r"tfsched/ops/native/([^/]+)/libtfsched\.so", name) for name in archive.namelist())
        return [one[1] for one in found if one]


def attempt(wheel: pathlib.Path, version: str) -> Outcome:
    """Installs TensorFlow `version` and the wheel as a user would, and tries them."""
    home = _WORK / version
    shutil.rmtree(home, ignore_errors=True)
    python = home / "bin" / "python"
    try:
        for command in (
            [sys.executable, "-m", "venv", str(home)],
            [str(python), "-m", "pip", "-q", "install", f"tensorflow-cpu=={version}"],
            [str(python), "-m", "pip", "-q", "install", str(wheel)],
        ):
            result = subprocess.run(command, capture_output=True, text=True, timeout=1800)
            if result.returncode != 0:
                return Outcome("", "", f"{' '.join(command[1:])}: {result.stderr[-2000:]}")
        directory = home / "run"
        directory.mkdir()
        ask = "import tensorflow as tf; print(*tf.sysconfig.get_compile_flags())"
        status, printed = run([str(python), "-c", ask], directory)
        if status != 0:
            return Outcome("", "", f"TensorFlow cannot be imported: {printed[-2000:]}")
        if missing := set(native.DEFINES) ^ {flag for flag in printed.split() if flag.startswith("-D")}:
            return Outcome("", "", f"the library was compiled with other flags than tf.sysconfig says: {' '.join(missing)}")
        return check(python, version, directory)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def table(wheel: pathlib.Path, outcomes: dict[str, Outcome]) -> str:
    """The table in Markdown."""
    held = ", ".join(releases_in(wheel))
    lines = [
        f"The wheel holds the library for {held}. `make compat` installed it with pip beside each release below, on Python "
        f"{platform.python_version()}, on {time.strftime('%Y-%m-%d')}; training is `examples/session.py`, a worker and a "
        "parameter server.",
        "",
        "| TensorFlow | `tfsched doctor` | training in two processes |",
        "|---|---|---|",
    ]
    for version in sorted(outcomes, key=releases.numbers):
        outcome = outcomes[version]
        first = outcome.failure.splitlines()[0] if outcome.failure else ""
        lines.append(f"| {version} | {outcome.doctor or 'fails'} | {outcome.training or f'fails: {first[:200]}'} |")
    return "\n".join(lines)


def replaced(text: str, table: str) -> str:
    """`text` with `table` between the two markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        native.fail(f"{PAGE} has no lines {BEGIN!r} and {END!r}; put them where the table belongs.")
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def main(arguments: list[str]) -> int:
    if not arguments:
        native.fail("name the wheel to try, for example dist/tfsched-*.whl.")
    wheel = pathlib.Path(arguments[0]).absolute()
    if not wheel.is_file():
        native.fail(f"there is no wheel {wheel}; build one with make wheels.")
    held = releases_in(wheel)
    versions = arguments[1:] or releases.newest_of_each_minor(held)
    if unknown := [version for version in versions if version not in held]:
        native.fail(f"{wheel.name} has no library for TensorFlow {', '.join(unknown)}; it has those for {', '.join(held)}.")
    outcomes: dict[str, Outcome] = {}
    for version in versions:
        begin = time.monotonic()
        outcomes[version] = attempt(wheel, version)
        print(f"TensorFlow {version}: {outcomes[version].failure or 'works'} ({time.monotonic() - begin:.0f} s)", flush=True)
        # After each, so that a run that is ended has written what it saw.
        PAGE.write_text(replaced(PAGE.read_text(), table(wheel, outcomes)))
    print(table(wheel, outcomes))
    return 1 if any(outcome.failure for outcome in outcomes.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
