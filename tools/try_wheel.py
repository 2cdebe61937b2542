"""`make wheel-test`: what `make wheels` builds works in environments that have never seen the source tree.

    python -m tools.try_wheel VENV...    for example .venv216 .venv

Builds one wheel for the TensorFlow releases of the environments. For each it makes a new environment that has the wheel and
sees the packages of the given one, but not the tfsched that is installed in that in place: TensorFlow need not be downloaded
again. There it runs `tfsched doctor` and a training in two processes, outside of the source tree.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from tools import native, wheels
from tools.native import ROOT

_LIMIT_S = 300


class Outcome(NamedTuple):
    """What was seen in one environment; `failure` is "" where everything works."""

    doctor: str
    training: str
    failure: str


def check(python: pathlib.Path, version: str, directory: pathlib.Path) -> Outcome:
    """Runs `tfsched doctor` and examples/session.py, a parameter server and a worker, in `directory` with `python`.

    Args:
      python: of an environment with the wheel and TensorFlow `version`.
    """
    for name in ("session.py", "local_cluster.py"):
        shutil.copy(ROOT / "examples" / name, directory)
    status, printed = run([str(python.with_name("tfsched")), "doctor", "--json"], directory)
    try:
        checks = json.loads(printed[printed.index("[") :])
    except ValueError:
        return Outcome("", "", f"tfsched doctor: {printed[-2000:]}")
    failed = [f"{one['what']}: {one['detail']}" for one in checks if not one["ok"] and one["what"] != "network namespaces"]
    library = next((one["detail"] for one in checks if one["what"] == "native library"), "")
    inside = f"{python.parent.parent}/lib"
    if status != 0 or failed:
        return Outcome("", "", f"tfsched doctor: {'; '.join(failed) or printed[-2000:]}")
    if not library.startswith(inside) or f"/ops/native/{version}/" not in library:
        return Outcome("", "", f"the library is not the wheel's for TensorFlow {version}: {library}")
    doctor = f"{sum(one['ok'] for one in checks)} checks pass"

    status, printed = run([str(python), "session.py"], directory)
    losses = [float(number) for number in re.findall(r"loss (\d+\.\d+)", printed)]
    ordered = re.search(r"(\d+) transfers of the parameter server were ordered", printed)
    if status != 0 or not ordered or len(losses) < 2 or losses[-1] > losses[0] / 2:
        return Outcome(doctor, "", f"examples/session.py: {printed[-2000:]}")
    return Outcome(doctor, f"loss {losses[0]:.2f} to {losses[-1]:.2f}, {ordered[1]} transfers ordered", "")


def run(command: list[str], directory: pathlib.Path) -> tuple[int, str]:
    """(exit status, output, with errors if it failed) of a command that must know nothing of the source tree."""
    # Without proxies, for the tasks of a cluster talk to each other over HTTP/2.
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.lower().endswith("_proxy") and not key.startswith(("TFSCHED_", "PYTHON")) and key != "TF_CONFIG"
    }
    environment |= {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    process = subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return -1, f"not finished after {_LIMIT_S} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the tasks are of its group
    return process.returncode, output if process.returncode == 0 else output + errors[-2000:]


def packages_of(venv: pathlib.Path) -> pathlib.Path:
    """The directory of an environment's packages."""
    found = next(venv.glob("lib/python*/site-packages"), None)
    if found is None:
        native.fail(f"{venv} is no environment of Python; name one with TensorFlow, as `make env` makes it.")
    return found


def environment_like(venv: pathlib.Path, directory: pathlib.Path, wheel: pathlib.Path) -> pathlib.Path:
    """Makes an environment in `directory` with `wheel` and what is in `venv`; returns its Python."""
    base = venv / "bin" / "python"
    subprocess.run([str(base), "-m", "venv", "--without-pip", str(directory)], check=True, timeout=100)
    python = directory / "bin" / "python"
    # While it sees nothing of the other environment, so that pip takes nothing there for installed.
    pip = [str(base), "-m", "pip", "-q", "--disable-pip-version-check", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-index", "--no-deps", str(wheel)], check=True, timeout=100)
    # Python adds the directory to its path, but reads no .pth file in it: those are what leads to the tfsched of the tree.
    (packages_of(directory) / "packages-of-another-environment.pth").write_text(f"{packages_of(venv).resolve()}\n")
    return python


def main(arguments: list[str]) -> int:
    if not arguments:
        native.fail("give the environments to try the wheel in, for example .venv216 .venv.")
    begin = time.monotonic()
    venvs = [pathlib.Path(one).absolute() for one in arguments]
    versions = [native.found_in(packages_of(venv)).version for venv in venvs]
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name).resolve()
        wheel = wheels.build(versions, scratch)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, after {time.monotonic() - begin:.0f} s", flush=True)

        def attempt(venv: pathlib.Path, version: str) -> Outcome:
            directory = scratch / version
            python = environment_like(venv, directory, wheel)
            (directory / "run").mkdir()
            return check(python, version, directory / "run")

        with concurrent.futures.ThreadPoolExecutor(len(venvs)) as pool:
            outcomes = list(pool.map(attempt, venvs, versions))
    for version, outcome in zip(versions, outcomes, strict=True):
        print(f"TensorFlow {version}: {outcome.failure or f'doctor: {outcome.doctor}; training: {outcome.training}'}")
    print(f"{time.monotonic() - begin:.0f} s")
    return 1 if any(outcome.failure for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
