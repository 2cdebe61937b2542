"""What the tests of clusters share."""

import pytest

from .cluster import task_environment
from .nurseries import Nursery


def pytest_configure(config):
    """Lets the files name their time limits where pytest-timeout is missing: every wait in cluster.py is bounded anyway."""
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout(seconds): the time limit of a test")


@pytest.fixture(scope="session")
def nursery():
    """Where clusters of tfsched tasks fork them: importing TensorFlow is most of what a task costs."""
    with Nursery(task_environment()) as nursery:
        yield nursery
