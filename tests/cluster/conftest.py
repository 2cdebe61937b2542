"""What the tests of clusters share."""

import pytest

from .cluster import task_environment
from .nurseries import Nurseries


def pytest_configure(config):
    """Lets the files name their time limits where pytest-timeout is missing: every wait in cluster.py is bounded anyway."""
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout(seconds): the time limit of a test")


@pytest.fixture(scope="session")
def nursery():
    """Where clusters fork their tasks, stock ones too: importing TensorFlow is most of what a task costs."""
    with Nurseries(task_environment()) as nursery:
        yield nursery
