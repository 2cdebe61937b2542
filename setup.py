"""Builds the native libraries with tools/native.py; everything else about the package is in pyproject.toml."""

from __future__ import annotations

import os
import pathlib
import shlex
import sys
from typing import ClassVar

from setuptools import Command, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))  # not there when pip runs this file

from tools import native

OPS = pathlib.PurePath("tfsched/ops")
SIMULATOR = pathlib.PurePath("tfsched/simulator") / native.SIMULATOR
# tools/wheels.py has compiled for these releases of TensorFlow. No option of build_ext, for bdist_wheel would reset it.
RELEASES = os.environ.get("TFSCHED_WHEEL_RELEASES", "").split()


class BuildNative(build_ext):
    """build_ext with the compiler called directly: the libraries are no Python extension modules."""

    def _files(self) -> dict[pathlib.PurePath, pathlib.Path]:
        """Path in the package -> path in build/native."""
        versions = {OPS / "native" / version: version for version in RELEASES}
        places = versions or {OPS: native.installed().version}
        names = [f"{native.LIBRARY}{suffix}" for suffix in (".so", ".json")]
        libraries = {place / name: native.NATIVE / version / name for place, version in places.items() for name in names}
        return {**libraries, SIMULATOR: native.NATIVE / "simulator" / native.SIMULATOR}

    def run(self) -> None:
        if not RELEASES:
            tensorflow = native.installed()
            native.build_simulator()
            native.build_library(tensorflow)
        for target, source in self._files().items():
            native.put(source, (native.ROOT if self.inplace else pathlib.Path(self.build_lib)) / target)

    def get_outputs(self) -> list[str]:
        return [str((native.ROOT if self.inplace else pathlib.Path(self.build_lib)) / target) for target in self._files()]

    def get_output_mapping(self) -> dict[str, str]:
        return {str(pathlib.Path(self.build_lib) / target): str(target) for target in self._files()} if self.inplace else {}

    def get_source_files(self) -> list[str]:
        return [str(path.relative_to(native.ROOT)) for path in native.all_sources()]


class Simple(Command):
    """A command without options."""

    user_options: ClassVar[list[tuple[str, str | None, str]]] = []

    def initialize_options(self) -> None:
        pass

    def finalize_options(self) -> None:
        pass


class BuildSimulator(Simple):
    """The simulator's library alone, in place, for machines without TensorFlow."""

    description = "build the simulator's library in place (needs a C++ compiler, no TensorFlow)"

    def run(self) -> None:
        native.put(native.build_simulator(), native.ROOT / SIMULATOR)


class CompileFlags(Simple):
    """For other compilers that look at the library's files (`make cc-annotations`)."""

    description = "print the flags that files with TensorFlow in them are compiled with"

    def run(self) -> None:
        print(shlex.join(native.compile_flags(native.installed())))


class NativeWheel(bdist_wheel):
    """The libraries depend on the platform and on TensorFlow, not on the version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension(f"tfsched.ops.{native.LIBRARY}", sources=[])],
    cmdclass={
        "build_ext": BuildNative,
        "build_simulator": BuildSimulator,
        "compile_flags": CompileFlags,
        "bdist_wheel": NativeWheel,
    },
)
