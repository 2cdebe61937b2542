"""What the bench's tests share."""

import os
import pathlib
import subprocess

import pytest

from tfsched.bench import testbed

WITHOUT_EXTRAS = pathlib.Path(__file__).resolve().parent.parent / "without_extras"


@pytest.fixture(scope="module", autouse=True)
def tasks_without_extras():
    """A task needs none of tfsched's extras; there are many tasks here, and each imports TensorFlow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(WITHOUT_EXTRAS), prepend=os.pathsep)
        yield


@pytest.fixture
def own_namespaces():
    """Lists this process's namespaces; skips where none can be made."""
    available, reason = testbed.netns_available()
    if not available:
        pytest.skip(reason)

    def find(pid: int | None = None) -> list[str]:
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=20, check=True).stdout
        prefix = f"tfs{pid or os.getpid()}-"
        return [line.split()[0] for line in listed.splitlines() if line.startswith(prefix)]

    return find
