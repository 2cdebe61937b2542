"""What the tests of clusters share."""


def pytest_configure(config):
    """Lets the files name their time limits where pytest-timeout is missing: every wait in cluster.py is bounded anyway."""
    if not config.pluginmanager.hasplugin("timeout"):
        config.addinivalue_line("markers", "timeout(seconds): the time limit of a test")
