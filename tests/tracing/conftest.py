"""Lets the tests of this directory use the graphs and the cluster of tests/grappler."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "grappler"))
