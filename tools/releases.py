"""The TensorFlow releases to compile against: which there are, and their headers and libraries."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

from tools import native
from tools.native import ROOT, TensorFlow

UNPACKED = ROOT / "build" / "tensorflow"
# Headers and libraries are the same in the wheels for every Python. All supported releases have one for this version.
PYTHON = "3.11"
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
_ONE_PYTHON = ("--only-binary=:all:", f"--python-version={PYTHON}")


def in_index() -> list[str]:
    """Every supported release that the package index has, the oldest first."""
    command = [*_PIP, "index", "versions", "tensorflow-cpu", *_ONE_PYTHON]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    listed = re.search(r"^Available versions: (.*)$", result.stdout, re.MULTILINE)
    if result.returncode != 0 or not listed:
        native.fail(
            f"the package index does not say which releases of tensorflow-cpu it has ({_reason(result.stderr)}); "
            "name them in VERSIONS."
        )
    versions = [version for version in listed[1].split(", ") if re.fullmatch(r"\d+\.\d+\.\d+", version)]
    return sorted((version for version in versions if _is_supported(version)), key=numbers)


def _reason(printed: str) -> str:
    """The error among what pip has printed."""
    return next((line for line in printed.splitlines() if line.startswith("ERROR:")), "pip gave no reason")


def numbers(version: str) -> list[int]:
    """What releases are sorted by."""
    return [int(part) for part in version.split(".")]


def _is_supported(version: str) -> bool:
    return native.OLDEST <= tuple(numbers(version)[:2]) <= native.NEWEST


def newest_of_each_minor(versions: list[str]) -> list[str]:
    """The last patch release of each minor version in `versions`."""
    return list({tuple(numbers(version)[:2]): version for version in sorted(versions, key=numbers)}.values())


def obtain(version: str) -> TensorFlow:
    """The release `version`: of an environment of this tree, unpacked before, or downloaded now."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version) or not _is_supported(version):
        native.fail(f"VERSIONS names {version!r}; give releases from 2.16.1 to 2.21, for example VERSIONS='2.16.2 2.21.0'.")
    for packages in sorted(ROOT.glob(".venv*/lib/python*/site-packages")):
        if (packages / "tensorflow").is_dir() and (found := native.found_in(packages)).version == version:
            return found
    unpacked = UNPACKED / version
    if not unpacked.exists():
        _download(version, unpacked)
    return TensorFlow(version, unpacked / "tensorflow")


def _download(version: str, target: pathlib.Path) -> None:
    """Unpacks the headers and the two libraries of a release below `target`."""
    partial = target.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    print("downloading tensorflow-cpu", version, flush=True)
    command = [*_PIP, "download", "-q", "--no-deps", *_ONE_PYTHON, "-d", str(partial), f"tensorflow-cpu=={version}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    if result.returncode != 0:
        native.fail(f"tensorflow-cpu {version} cannot be downloaded ({_reason(result.stderr)}).")
    (wheel,) = partial.glob("*.whl")
    wanted = tuple(f"tensorflow/{name}" for name in ("include/", *native.LIBRARIES))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(partial, [name for name in archive.namelist() if name.startswith(wanted)])
    wheel.unlink()
    partial.replace(target)
