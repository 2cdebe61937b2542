"""Links a library of another build than this one: the same code, but for the definition of one op."""

import os
import pathlib
import shlex
import subprocess

import tensorflow as tf

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_NATIVE = _ROOT / "build" / "native" / tf.__version__
_UNITS = _ROOT / "build" / "native" / "units"
_CHANGED = pathlib.Path("cc/ops/transfers/proxy_op.cc")


def _objects():
    """The objects that the library was linked from."""
    inputs = _NATIVE / "libtfsched.inputs"
    assert inputs.exists(), f"{inputs} does not exist; build the library in place first: make native"
    return [_NATIVE / name for name in shlex.split(inputs.read_text())]


def build(directory, more):
    """The path of a library in ``directory``: this one, but its TfschedProxy has the attribute ``more`` besides."""
    objects = _objects()
    include = f'#include "{_CHANGED}"\n'
    (replaced,) = [one for one in objects if include in (_UNITS / f"{one.stem}.cc").read_text()]
    unit = _UNITS / f"{replaced.stem}.cc"
    attr = '.Attr("count: int >= 1")'
    text = (_ROOT / _CHANGED).read_text()
    assert text.count(attr) == 1
    source = directory / unit.name
    source.write_text(unit.read_text().replace(include, text.replace(attr, f'{attr} .Attr("{more}")')))
    compiler = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    compiled, library = source.with_suffix(".o"), directory / "libtfsched.so"
    flags = [f"-I{_ROOT}", "-std=c++17", "-fPIC", "-DNDEBUG", *tf.sysconfig.get_compile_flags(), "-w"]
    subprocess.run([*compiler, *flags, "-c", str(source), "-o", str(compiled)], check=True, timeout=200)
    linked = [str(compiled), *(str(one) for one in objects if one != replaced)]
    names = ("-l:libtensorflow_framework.so.2", "-l:libtensorflow_cc.so.2")
    subprocess.run(
        [*compiler, "-shared", "-o", str(library), *linked, f"-L{tf.sysconfig.get_lib()}", *names], check=True, timeout=200
    )
    return str(library)
