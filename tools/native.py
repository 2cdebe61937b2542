"""Compiles the native libraries: tfsched's against one TensorFlow, the simulator's against nothing.

The library for a TensorFlow and what it was built for go to ``build/native/<version>/``. Objects stay there, so that a
second build compiles only what has changed. Nearly all of a file's time goes into TensorFlow's headers, so several files are
compiled as one unit; Bazel compiles each by itself. TensorFlow is never imported: its version is in its metadata.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import site
import subprocess
import sys
import sysconfig
from typing import NamedTuple, NoReturn

ROOT = pathlib.Path(__file__).resolve().parent.parent
NATIVE = ROOT / "build" / "native"
LIBRARY = "libtfsched"
SIMULATOR = "libtfsched_sim.so"

OLDEST, NEWEST = (2, 16), (2, 21)
INSTALL = "pip install 'tensorflow>=2.16,<2.22'"  # or tensorflow-cpu: the same library

# Where TensorFlow's wheel keeps the headers of what its own headers include; not every version has each.
INCLUDES = ("", "external/com_github_grpc_grpc/include", "external/farmhash_archive/src", "external/nsync/public")
# More would leave a processor idle at the end, and make the recompilation of a changed file long.
FILES_OF_A_UNIT = 10
WARNINGS = ("-Wall", "-Wno-deprecated-declarations")
COMPILE = ("-std=c++17", "-O2", "-fPIC", "-DNDEBUG", *WARNINGS, "-I.", "-include", "cc/core/symbol_versions.h")
# What tf.sysconfig.get_compile_flags() says of every supported release: tests/install and `make compat` compare.
DEFINES = ("-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64")
LIBRARIES = ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")


class TensorFlow(NamedTuple):
    """A TensorFlow to compile against: its version, and the directory with include/ and its libraries."""

    version: str
    directory: pathlib.Path


def fail(sentence: str) -> NoReturn:
    """Ends the build with one sentence. Exiting keeps pip and setuptools from adding a traceback."""
    raise SystemExit(f"tfsched: {sentence}")


def installed() -> TensorFlow:
    """The TensorFlow of this environment; ends the build where there is none, or one that is not supported."""
    spec = importlib.util.find_spec("tensorflow")
    places = [pathlib.Path(place).parent for place in (spec and spec.submodule_search_locations) or ()]
    # pip hides the environment from an isolated build, but runs that build with the environment's own Python.
    places += [
        pathlib.Path(place) for place in (sysconfig.get_path("purelib"), *site.getsitepackages(), site.getusersitepackages())
    ]
    home = next((place for place in places if (place / "tensorflow").is_dir()), None)
    if home is None:
        fail(
            f"there is no TensorFlow in {sys.prefix} to compile against; run {INSTALL} first, and if that is done, add "
            "--no-build-isolation to this installation."
        )
    return found_in(home)


def found_in(packages: pathlib.Path) -> TensorFlow:
    """The TensorFlow in a directory of installed packages; ends the build if it is of no use."""
    directory = (packages / "tensorflow").resolve()  # as compilers name what they find in it
    if not (directory / LIBRARIES[0]).exists():
        fail(f"{directory / LIBRARIES[0]} does not exist; this TensorFlow has no C++ library to link to. Run {INSTALL}.")
    for distribution in importlib.metadata.distributions(path=[str(packages)]):
        if distribution.name.lower().startswith(("tensorflow", "tf")) and any(
            str(file) == f"tensorflow/{LIBRARIES[0]}" for file in distribution.files or ()
        ):
            # A release candidate calls itself 2.21.0-rc1, its distribution 2.21.0rc1.
            return supported(TensorFlow(re.sub(r"(?<=\d)rc", "-rc", distribution.version), directory))
    fail(f"{directory} belongs to no installed distribution, so its version is unknown. Run {INSTALL}.")


def supported(tensorflow: TensorFlow) -> TensorFlow:
    found = re.match(r"(\d+)\.(\d+)", tensorflow.version)
    if not found or not OLDEST <= (int(found[1]), int(found[2])) <= NEWEST:
        first, last = ".".join(map(str, OLDEST)), ".".join(map(str, NEWEST))
        fail(f"TensorFlow {tensorflow.version} is not supported, only {first} to {last}; run {INSTALL}.")
    return tensorflow


def compiler() -> list[str]:
    """The C++ compiler: $CXX, or the system's."""
    command = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    if shutil.which(command[0]) is None:
        fail(f"there is no C++ compiler {command[0]!r}; install g++ (Debian: apt-get install g++), or set CXX to another.")
    return command


def all_sources() -> list[pathlib.Path]:
    """Every .cc file under cc/ but tests and benchmarks."""
    return sorted(path for path in (ROOT / "cc").rglob("*.cc") if not path.stem.endswith(("_test", "_bench")))


def simulator_sources() -> list[pathlib.Path]:
    """The simulator and what of production it drives: no TensorFlow."""
    parts = [ROOT / "cc" / name for name in ("collective", "core", "simulator")]
    return [path for path in all_sources() if path.parent in parts]


def units() -> list[pathlib.Path]:
    """Files that include every source of tfsched's library once, neighbours together."""
    directory = NATIVE / "units"
    names = [path.relative_to(ROOT).as_posix() for path in all_sources() if path.parent.name != "simulator"]
    made = []
    for first in range(0, len(names), FILES_OF_A_UNIT):
        unit = directory / f"unit_{first // FILES_OF_A_UNIT}.cc"
        text = "".join(f'#include "{name}"\n' for name in names[first : first + FILES_OF_A_UNIT])
        if not unit.exists() or unit.read_text() != text:
            directory.mkdir(parents=True, exist_ok=True)
            unit.write_text(text)
        made.append(unit)
    return made


def include_flags(tensorflow: TensorFlow) -> list[str]:
    """TensorFlow's headers, as system headers: they do not warn."""
    include = tensorflow.directory / "include"
    return [f"-isystem{include / path}" for path in INCLUDES if (include / path).is_dir()]


def compile_flags(tensorflow: TensorFlow) -> list[str]:
    """What a file that includes TensorFlow is compiled with, beside the compiler and $CXXFLAGS."""
    return [*COMPILE, *DEFINES, *include_flags(tensorflow)]


def build_library(tensorflow: TensorFlow) -> pathlib.Path:
    """Brings build/native/<TensorFlow version>/libtfsched.so and .json up to date; returns their directory."""
    cxx = compiler()
    own = [*cxx, *COMPILE, *DEFINES, *shlex.split(os.environ.get("CXXFLAGS", ""))]
    library = NATIVE / tensorflow.version / f"{LIBRARY}.so"
    link = [*(f"-l:{name}" for name in LIBRARIES), *shlex.split(os.environ.get("LDFLAGS", ""))]
    # Messages with __FILE__ in TensorFlow's headers name a header, not the directory of the machine that compiled it.
    headers = [f"-fmacro-prefix-map={tensorflow.directory / 'include'}/=", *include_flags(tensorflow)]
    build(library, units(), own, link, headers, [f"-L{tensorflow.directory}"])
    version = subprocess.run([*cxx, "--version"], capture_output=True, text=True).stdout.splitlines()
    made = {
        "tensorflow": tensorflow.version,
        "compiler": (version or [cxx[0]])[0],
        "python": platform.python_version(),
    }
    library.with_suffix(".json").write_text(json.dumps(made, indent=1) + "\n")
    return library.parent


def build_simulator() -> pathlib.Path:
    """Brings build/native/simulator/libtfsched_sim.so up to date and returns it; needs a compiler and nothing else."""
    command = [*compiler(), *COMPILE, "-fvisibility=hidden", *shlex.split(os.environ.get("CXXFLAGS", ""))]
    library = NATIVE / "simulator" / SIMULATOR
    build(library, simulator_sources(), command, ["-pthread", *shlex.split(os.environ.get("LDFLAGS", ""))], [], [])
    return library


def build(
    library: pathlib.Path,
    sources: list[pathlib.Path],
    command: list[str],
    link: list[str],
    headers: list[str],
    libraries: list[str],
) -> None:
    """Compiles what has changed and links it, or ends the build.

    Args:
      library: what is made. Its objects are beside it, in a directory for each command; <library>.inputs names them.
      command, link: the compiler with its flags, and what is added to link. Other flags make other objects.
      headers, libraries: flags that say where TensorFlow is.
    """
    directory = library.parent
    objects_of = directory / hashlib.sha256(shlex.join(command + link).encode()).hexdigest()[:12]
    targets = {source: (objects_of / source.relative_to(ROOT)).with_suffix(".o") for source in sources}
    workers = int(os.environ.get("MAX_JOBS", "0")) or os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for complaint in pool.map(lambda item: compile_one([*command, *headers], *item), targets.items()):
            if complaint:
                pool.shutdown(cancel_futures=True)
                fail(f"{complaint}; the compiler's message is above.")

    record = library.with_suffix(".inputs")
    objects = list(targets.values())
    inputs = shlex.join(str(target.relative_to(directory)) for target in objects)
    current = library.exists() and record.exists() and record.read_text() == inputs
    if current and all(target.stat().st_mtime_ns < library.stat().st_mtime_ns for target in objects):
        return
    print("linking", library.relative_to(ROOT), flush=True)
    partial = library.with_suffix(".partial")
    result = subprocess.run([*compiler(), "-shared", "-o", str(partial), *map(str, objects), *libraries, *link])
    if result.returncode != 0:
        fail(f"{library.name} does not link; the linker's message is above.")
    partial.replace(library)
    record.write_text(inputs)


def compile_one(command: list[str], source: pathlib.Path, target: pathlib.Path) -> str:
    """Compiles `source`; returns the compiler's complaint, "" if there is none."""
    if is_current(target):
        return ""
    print("compiling", source.relative_to(ROOT), flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Written under another name, so that an interrupted compiler leaves nothing that looks finished.
    partial = target.with_suffix(f".{os.getpid()}.partial")
    arguments = ["-MD", "-MF", str(target.with_suffix(".d")), "-c", str(source.relative_to(ROOT)), "-o", str(partial)]
    result = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)
    if result.stderr:
        print(result.stderr, file=sys.stderr, flush=True)
    if result.returncode != 0:
        return f"{source.relative_to(ROOT)} does not compile"
    partial.replace(target)
    return ""


def is_current(target: pathlib.Path) -> bool:
    """Whether `target` is newer than everything that its dependency file names."""
    try:
        built = target.stat().st_mtime_ns
        return all(os.stat(ROOT / name).st_mtime_ns < built for name in dependencies(target))
    except OSError:  # never built, or a header is gone
        return False


def dependencies(target: pathlib.Path) -> list[str]:
    """The files that `target` was compiled from, as its dependency file names them: all headers, TensorFlow's too."""
    text = target.with_suffix(".d").read_text().replace("\\\n", " ").partition(":")[2]
    return [name.replace("\\ ", " ") for name in re.split(r"(?<!\\)\s+", text.strip())]


def put(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies a file unless the target has the same bytes. A library that is in use keeps its old file."""
    if target.exists() and target.read_bytes() == source.read_bytes():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    shutil.copyfile(source, partial)
    partial.replace(target)
