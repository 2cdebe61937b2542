"""The source distribution holds what it is compiled from; a build without TensorFlow says so in one sentence."""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import setuptools
import tensorflow as tf

from tools import native

ROOT = native.ROOT


def setup(*arguments, python=sys.executable, cwd=ROOT):
    command = [str(python), "-W", "ignore", "setup.py", "-q", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=100)


def test_the_flags_are_those_of_the_installed_tensorflow():
    said = [flag for flag in tf.sysconfig.get_compile_flags() if flag.startswith("-D")]
    assert set(native.DEFINES) == set(said)
    found = native.installed()
    assert found.version == tf.__version__
    assert found.directory == pathlib.Path(tf.sysconfig.get_lib()).resolve()


def test_it_holds_what_it_is_compiled_from(tmp_path):
    made = setup("egg_info", "-e", str(tmp_path), "sdist", "-d", str(tmp_path))
    assert made.returncode == 0, made.stderr
    (archive,) = tmp_path.glob("tfsched-*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path)
    tree = tmp_path / archive.name.removesuffix(".tar.gz")
    wanted = [*(ROOT / "cc").rglob("*.cc"), *(ROOT / "cc").rglob("*.h"), ROOT / "LICENSE", ROOT / "NOTICE"]
    missing = [str(path.relative_to(ROOT)) for path in wanted if not (tree / path.relative_to(ROOT)).exists()]
    assert missing == []
    assert [str(path) for path in tree.rglob("*.so")] == []

    # Compiling takes minutes, so the objects are those of this tree's library; what is missing would be compiled.
    for name in (tf.__version__, "simulator", "units"):
        shutil.copytree(native.NATIVE / name, tree / "build" / "native" / name)
    built = setup("build_ext", "--build-lib", str(tmp_path / "lib"), cwd=tree)
    assert built.returncode == 0, built.stderr
    assert "compiling" not in built.stdout
    names = {str(path.relative_to(tmp_path / "lib")) for path in (tmp_path / "lib").rglob("*") if path.is_file()}
    assert names == {
        "tfsched/ops/libtfsched.so",
        "tfsched/ops/libtfsched.json",
        "tfsched/simulator/libtfsched_sim.so",
    }


def test_without_tensorflow_the_build_ends_with_one_sentence(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True, timeout=60)
    (packages,) = tmp_path.glob("lib/python*/site-packages")
    for name in ("setuptools", "_distutils_hack"):
        (packages / name).symlink_to(pathlib.Path(setuptools.__file__).parent.parent / name)
    python = tmp_path / "bin" / "python"
    result = setup("build_ext", "--build-lib", str(tmp_path / "lib"), python=python)
    assert result.returncode == 1
    assert re.fullmatch(
        rf"tfsched: there is no TensorFlow in {re.escape(str(tmp_path))} to compile against; run pip install "
        r"'tensorflow>=2\.16,<2\.22' first, and if that is done, add --no-build-isolation to this installation\.\n",
        result.stderr,
    )
