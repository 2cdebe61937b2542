"""Builds the native libraries; everything else about the package is in pyproject.toml.

tfsched's is built against the installed TensorFlow, the simulator's against nothing (``setup.py build_simulator``).

The library and what it was built for go to ``build/native/<TensorFlow version>/`` and from there into the package. Objects
stay in ``build/native``, so that a second build compiles only what has changed. Nearly all of a file's time goes into
TensorFlow's headers, so several files are compiled as one unit; Bazel compiles each by itself.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import importlib.util
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
from typing import Any, ClassVar, NoReturn

from setuptools import Command, Extension, setup
from setuptools.command.build_ext import build_ext

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1
    try:
        from wheel.bdist_wheel import bdist_wheel
    except ImportError:  # no wheel can be made here, but the library can be built in place
        bdist_wheel = None

ROOT = pathlib.Path(__file__).resolve().parent
NATIVE = ROOT / "build" / "native"
LIBRARY = "libtfsched"
PACKAGE = "tfsched/ops"
SIMULATOR = "tfsched/simulator/libtfsched_sim.so"

OLDEST, NEWEST = (2, 16), (2, 21)
INSTALL = "pip install 'tensorflow>=2.16,<2.22'"  # or tensorflow-cpu: the same library

# Where TensorFlow's wheel keeps the headers of what its own headers include; not every version has each.
INCLUDES = ("", "external/com_github_grpc_grpc/include", "external/farmhash_archive/src", "external/nsync/public")
# More would leave a processor idle at the end, and make a changed file's recompilation long.
FILES_OF_A_UNIT = 10
COMPILE = ("-std=c++17", "-O2", "-fPIC", "-DNDEBUG", "-Wall", "-Wno-deprecated-declarations")
LIBRARIES = ("-l:libtensorflow_framework.so.2", "-l:libtensorflow_cc.so.2")


def fail(sentence: str) -> NoReturn:
    """Ends the build with one sentence. Exiting keeps pip and setuptools from adding a traceback."""
    raise SystemExit(f"tfsched: {sentence}")


def tensorflow_facts() -> dict[str, Any]:
    """The installed TensorFlow's version, directories and compile flags, or the end of the build."""
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        fail(f"TensorFlow is not installed here; run {INSTALL} first, then pip install --no-build-isolation .")
    library = pathlib.Path(next(iter(spec.submodule_search_locations))) / "libtensorflow_framework.so.2"
    if not library.exists():
        fail(f"{library} does not exist; this TensorFlow has no C++ library to link to. Run {INSTALL}.")
    # Importing TensorFlow takes seconds, so what it said is kept for as long as its library is the same file.
    stat = library.stat()
    key = f"{library} {stat.st_size} {stat.st_mtime_ns}"
    cache = NATIVE / f"tensorflow-{hashlib.sha256(key.encode()).hexdigest()[:12]}.json"
    if not cache.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(ask_tensorflow()))
    facts = json.loads(cache.read_text())
    found = re.match(r"(\d+)\.(\d+)", facts["version"])
    if not found or not OLDEST <= (int(found[1]), int(found[2])) <= NEWEST:
        fail(
            f"TensorFlow {facts['version']} is not supported, only {'.'.join(map(str, OLDEST))} to "
            f"{'.'.join(map(str, NEWEST))}; run {INSTALL}."
        )
    return facts


def ask_tensorflow() -> dict[str, Any]:
    """Asks in another process: TensorFlow prints, and must not stay loaded in this one."""
    program = (
        "import json, tensorflow as tf; print(json.dumps({'version': tf.__version__, 'include': tf.sysconfig.get_include(), "
        "'lib': tf.sysconfig.get_lib(), 'flags': tf.sysconfig.get_compile_flags()}))"
    )
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=os.sep)
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no reason given"])[-1]
        fail(f"TensorFlow is installed but cannot be imported ({reason}); reinstall it.")
    facts: dict[str, Any] = json.loads(result.stdout.strip().splitlines()[-1])
    return facts


def compiler() -> list[str]:
    """The C++ compiler: $CXX, or the system's."""
    command = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    if shutil.which(command[0]) is None:
        fail(f"there is no C++ compiler {command[0]!r}; install g++ (Debian: apt-get install g++), or set CXX to another.")
    return command


def sources() -> list[pathlib.Path]:
    """Every .cc file under cc/ but tests, benchmarks and the simulator."""
    return [path for path in all_sources() if path.parent.name != "simulator"]


def simulator_sources() -> list[pathlib.Path]:
    """The simulator and what of production it drives: no TensorFlow."""
    parts = [ROOT / "cc" / name for name in ("collective", "core", "simulator")]
    return [path for path in all_sources() if path.parent in parts]


def units(directory: pathlib.Path) -> list[pathlib.Path]:
    """Files in `directory` that include every source of tfsched's library once, neighbours together."""
    names = [source.relative_to(ROOT).as_posix() for source in sources()]
    made = []
    for first in range(0, len(names), FILES_OF_A_UNIT):
        unit = directory / f"unit_{first // FILES_OF_A_UNIT}.cc"
        text = "".join(f'#include "{name}"\n' for name in names[first : first + FILES_OF_A_UNIT])
        if not unit.exists() or unit.read_text() != text:
            directory.mkdir(parents=True, exist_ok=True)
            unit.write_text(text)
        made.append(unit)
    return made


def all_sources() -> list[pathlib.Path]:
    return sorted(path for path in (ROOT / "cc").rglob("*.cc") if not path.stem.endswith(("_test", "_bench")))


def is_current(target: pathlib.Path) -> bool:
    """Whether `target` is newer than everything that its dependency file names."""
    dependencies = target.with_suffix(".d")
    try:
        names = shlex.split(dependencies.read_text().replace("\\\n", " ").partition(":")[2])
        built = target.stat().st_mtime_ns
        return all(os.stat(ROOT / name).st_mtime_ns < built for name in names)
    except OSError:  # never built, or a header is gone
        return False


def compile_one(command: list[str], source: pathlib.Path, target: pathlib.Path) -> str:
    """Compiles `source`; returns the compiler's complaint, "" if there is none."""
    if is_current(target):
        return ""
    print("compiling", source.relative_to(ROOT), flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Written under another name, so that an interrupted compiler leaves nothing that looks finished.
    partial = target.with_suffix(f".{os.getpid()}.partial")
    arguments = ["-MMD", "-MF", str(target.with_suffix(".d")), "-c", str(source.relative_to(ROOT)), "-o", str(partial)]
    result = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True)
    if result.stderr:
        print(result.stderr, file=sys.stderr, flush=True)
    if result.returncode != 0:
        return f"{source.relative_to(ROOT)} does not compile"
    partial.replace(target)
    return ""


def compile_flags() -> list[str]:
    """What a file that includes TensorFlow is compiled with, beside the compiler and $CXXFLAGS."""
    facts = tensorflow_facts()
    include = pathlib.Path(facts["include"])
    # As system headers TensorFlow's neither warn nor count as dependencies.
    includes = [f"-isystem{include / path}" for path in INCLUDES if (include / path).is_dir()]
    own = [flag for flag in facts["flags"] if flag.startswith("-D")]  # the C++ ABI and Eigen's alignment
    return [*COMPILE, *own, "-I.", *includes]


def build_library() -> pathlib.Path:
    """Brings build/native/<TensorFlow version>/libtfsched.so and .json up to date; returns their directory."""
    facts = tensorflow_facts()
    cxx = compiler()
    command = [*cxx, *compile_flags(), *shlex.split(os.environ.get("CXXFLAGS", ""))]
    link = [f"-L{facts['lib']}", *LIBRARIES, *shlex.split(os.environ.get("LDFLAGS", ""))]

    directory = NATIVE / facts["version"]
    objects_of = directory / hashlib.sha256(shlex.join(command + link).encode()).hexdigest()[:12]
    targets = {unit: objects_of / f"{unit.stem}.o" for unit in units(NATIVE / "units")}
    workers = int(os.environ.get("MAX_JOBS", "0")) or os.cpu_count() or 1
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for complaint in pool.map(lambda item: compile_one(command, *item), targets.items()):
            if complaint:
                pool.shutdown(cancel_futures=True)
                fail(f"{complaint}; the compiler's message is above.")

    made = {
        "tensorflow": facts["version"],
        "compiler": compiler_version(cxx),
        "python": platform.python_version(),
    }
    library, record, of = (directory / f"{LIBRARY}{suffix}" for suffix in (".so", ".json", ".inputs"))
    inputs = shlex.join(str(target.relative_to(directory)) for target in targets.values())
    objects = list(targets.values())
    current = library.exists() and record.exists() and of.exists() and of.read_text() == inputs
    if not current or any(target.stat().st_mtime_ns >= library.stat().st_mtime_ns for target in objects):
        print("linking", library.relative_to(ROOT), flush=True)
        partial = library.with_suffix(".partial")
        result = subprocess.run([*cxx, "-shared", "-o", str(partial), *map(str, objects), *link])
        if result.returncode != 0:
            fail("the library does not link; the linker's message is above.")
        partial.replace(library)
        record.write_text(json.dumps(made, indent=1) + "\n")
        of.write_text(inputs)
    return directory


def build_simulator() -> pathlib.Path:
    """Brings build/native/simulator/libtfsched_sim.so up to date and returns it; needs a compiler and nothing else."""
    cxx = compiler()
    command = [*cxx, *COMPILE, "-fvisibility=hidden", "-I.", *shlex.split(os.environ.get("CXXFLAGS", ""))]
    link = ["-pthread", *shlex.split(os.environ.get("LDFLAGS", ""))]
    directory = NATIVE / "simulator" / hashlib.sha256(shlex.join(command + link).encode()).hexdigest()[:12]
    targets = {source: (directory / source.relative_to(ROOT)).with_suffix(".o") for source in simulator_sources()}
    for source, target in targets.items():
        if complaint := compile_one(command, source, target):
            fail(f"{complaint}; the compiler's message is above.")
    library = directory / pathlib.Path(SIMULATOR).name
    of = library.with_suffix(".inputs")
    inputs = shlex.join(str(target.relative_to(directory)) for target in targets.values())
    current = library.exists() and of.exists() and of.read_text() == inputs
    if not current or any(target.stat().st_mtime_ns >= library.stat().st_mtime_ns for target in targets.values()):
        print("linking", library.relative_to(ROOT), flush=True)
        partial = library.with_suffix(".partial")
        if subprocess.run([*cxx, "-shared", "-o", str(partial), *map(str, targets.values()), *link]).returncode != 0:
            fail("the simulator does not link; the linker's message is above.")
        partial.replace(library)
        of.write_text(inputs)
    return library


def compiler_version(cxx: list[str]) -> str:
    """The first line that the compiler says about itself."""
    result = subprocess.run([*cxx, "--version"], capture_output=True, text=True)
    return (result.stdout.splitlines() or [cxx[0]])[0]


def put(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies a file unless the target has the same bytes. A library that is in use keeps its old file."""
    if target.exists() and target.read_bytes() == source.read_bytes():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    shutil.copyfile(source, partial)
    partial.replace(target)


class BuildNative(build_ext):
    """build_ext with g++ called directly: the library is no Python extension module."""

    def _files(self, directory: pathlib.Path | str) -> list[str]:
        own = [str(pathlib.Path(directory) / PACKAGE / f"{LIBRARY}{suffix}") for suffix in (".so", ".json")]
        return [*own, str(pathlib.Path(directory) / SIMULATOR)]

    def run(self) -> None:
        simulator = build_simulator()
        built = build_library()
        for target in self._files(ROOT if self.inplace else self.build_lib):
            name = pathlib.Path(target).name
            put(simulator if name == simulator.name else built / name, pathlib.Path(target))

    def get_outputs(self) -> list[str]:
        return self._files(ROOT if self.inplace else self.build_lib)

    def get_output_mapping(self) -> dict[str, str]:
        return dict(zip(self._files(self.build_lib), self._files(""), strict=True)) if self.inplace else {}

    def get_source_files(self) -> list[str]:
        return [str(path.relative_to(ROOT)) for path in all_sources()]


class BuildSimulator(Command):
    """The simulator's library alone, in place, for machines without TensorFlow."""

    description = "build the simulator's library in place (needs a C++ compiler, no TensorFlow)"
    user_options: ClassVar[list[tuple[str, str | None, str]]] = []

    def initialize_options(self) -> None:
        pass

    def finalize_options(self) -> None:
        pass

    def run(self) -> None:
        put(build_simulator(), ROOT / SIMULATOR)


class CompileFlags(Command):
    """For other compilers that look at the library's files (`make cc-annotations`)."""

    description = "print the flags that files with TensorFlow in them are compiled with"
    user_options: ClassVar[list[tuple[str, str | None, str]]] = []

    def initialize_options(self) -> None:
        pass

    def finalize_options(self) -> None:
        pass

    def run(self) -> None:
        print(shlex.join(compile_flags()))


commands = {"build_ext": BuildNative, "build_simulator": BuildSimulator, "compile_flags": CompileFlags}
if bdist_wheel is not None:

    class NativeWheel(bdist_wheel):
        """The library depends on the platform and on TensorFlow, not on the version of Python."""

        def get_tag(self) -> tuple[str, str, str]:
            _, _, platform_tag = super().get_tag()
            return "py3", "none", platform_tag

    commands["bdist_wheel"] = NativeWheel

setup(
    ext_modules=[Extension(f"tfsched.ops.{LIBRARY}", sources=[])],
    cmdclass=commands,
)
