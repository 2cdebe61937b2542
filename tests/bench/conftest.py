"""What the bench's tests share."""

import os
import subprocess

import pytest

from tfsched.bench import testbed


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
