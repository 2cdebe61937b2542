"""Which library a wheel's tfsched takes, which objects of one release serve another, the table of compatibility."""

import re
import zipfile

import pytest
import tensorflow as tf

from tfsched.errors import TfschedError
from tfsched.ops import library
from tools import compat, native, releases, wheels
from tools.try_wheel import Outcome

VERSION_HEADER = "#define TF_MINOR_VERSION 17\n#define TF_PATCH_VERSION {}\n"


@pytest.fixture
def installed_wheel(tmp_path, monkeypatch):
    """The directory of libraries of an installed wheel, which has one for TensorFlow 2.10.0 and one for 2.9.1."""
    monkeypatch.delenv("TFSCHED_LIBRARY", raising=False)
    monkeypatch.setattr(library, "_DIRECTORY", tmp_path)
    monkeypatch.setattr(library, "_RELEASES", tmp_path / "native")
    for version in ("2.10.0", "2.9.1"):
        (tmp_path / "native" / version).mkdir(parents=True)
        (tmp_path / "native" / version / "libtfsched.so").touch()
    return tmp_path / "native"


def test_a_wheel_has_a_library_for_each_release(installed_wheel):
    path = library.library_path()
    assert path == installed_wheel / tf.__version__ / "libtfsched.so"
    path.parent.mkdir()
    path.touch()
    library.check(path, tf.__version__)


def test_a_release_that_the_wheel_has_no_library_for_is_one_clear_sentence(installed_wheel):
    with pytest.raises(TfschedError) as raised:
        library.check(library.library_path(), tf.__version__)
    assert re.fullmatch(
        rf"tfsched's wheel has no native library for TensorFlow {tf.__version__}, only for 2\.9\.1, 2\.10\.0; install one "
        r"of them, or to build one run 'pip install --no-build-isolation .*' in this environment\.",
        str(raised.value),
    )


def test_a_library_built_here_comes_first(installed_wheel):
    built = installed_wheel.parent / "libtfsched.so"
    built.touch()
    assert library.library_path() == built


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A source tree with one file, and a function that gives a TensorFlow release with the header that it includes."""
    monkeypatch.setattr(native, "ROOT", tmp_path)
    monkeypatch.setattr(native, "NATIVE", tmp_path / "native")
    (tmp_path / "one.cc").write_text('#include "used.h"\n#include "version.h"\nint f() { return USED; }\n')

    def release(version, used, unused):
        include = tmp_path / "releases" / version / "include"
        include.mkdir(parents=True)
        (include / "used.h").write_text(f"#define USED {used}\n")
        (include / "unused.h").write_text(f"#define UNUSED {unused}\n")
        (include / "version.h").write_text(VERSION_HEADER.format(version[-1]))
        return native.TensorFlow(version, include.parent)

    return release


def build(release):
    """Builds the tree's only library for a release."""
    made = native.NATIVE / release.version / "libtfsched.so"
    headers = native.include_flags(release)
    native.build(made, [native.ROOT / "one.cc"], [*native.compiler(), "-fPIC"], [], headers, [])


def test_objects_serve_another_release_with_the_same_headers(tree, capfd):
    one, same, other = tree("2.17.0", 1, 1), tree("2.17.1", 1, 2), tree("2.17.2", 2, 1)
    build(one)
    capfd.readouterr()
    wheels.adopt(one, same)
    build(same)
    assert "compiling" not in capfd.readouterr().out
    wheels.adopt(one, other)
    build(other)
    assert "compiling" in capfd.readouterr().out


def test_objects_whose_source_has_changed_serve_none(tree, capfd):
    one, same = tree("2.17.0", 1, 1), tree("2.17.1", 1, 1)
    build(one)
    with (native.ROOT / "one.cc").open("a") as file:
        file.write("int g() { return 2; }\n")
    wheels.adopt(one, same)
    assert not (native.NATIVE / same.version).exists()
    # A header of TensorFlow that has changed in its place counts, too.
    build(one)
    capfd.readouterr()
    (one.directory / "include" / "used.h").write_text("#define USED 3\n")
    build(one)
    assert "compiling" in capfd.readouterr().out


@pytest.mark.parametrize("version", ["2.15.1", "2.22.0", "2.21", "../2.21.0"])
def test_releases_that_are_not_supported_are_one_clear_sentence(version):
    with pytest.raises(SystemExit) as raised:
        releases.obtain(version)
    assert f"VERSIONS names {version!r}; give releases from 2.16.1 to 2.21" in str(raised.value)


def test_the_newest_of_each_minor_version():
    assert releases.newest_of_each_minor(["2.16.1", "2.16.2", "2.18.10", "2.18.9", "2.20.0"]) == [
        "2.16.2",
        "2.18.10",
        "2.20.0",
    ]


def test_the_table_says_what_was_seen(tmp_path):
    wheel = tmp_path / "tfsched-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tfsched/ops/native/2.17.1/libtfsched.so", "")
        archive.writestr("tfsched/simulator/libtfsched_sim.so", "")
    outcomes = {
        "2.17.1": Outcome("9 checks pass", "loss 1.00 to 0.10", ""),
        "2.18.0": Outcome("", "", "tfsched doctor: no\nmore"),
    }
    made = compat.table(wheel, outcomes)
    assert "The wheel holds the library for 2.17.1." in made
    assert "| 2.17.1 | 9 checks pass | loss 1.00 to 0.10 |\n| 2.18.0 | fails | fails: tfsched doctor: no |" in made
    page = f"above\n{compat.BEGIN}\nold\n{compat.END}\nbelow\n"
    assert compat.replaced(page, made) == f"above\n{compat.BEGIN}\n\n{made}\n\n{compat.END}\nbelow\n"
    assert compat.PAGE.read_text().count(compat.BEGIN) == compat.PAGE.read_text().count(compat.END) == 1
