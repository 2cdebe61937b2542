"""Finds partition, credit and policy by measuring: searches that propose settings, a tuner that decides among noisy samples.

May import numpy, scipy, scikit-optimize, matplotlib, tfsched._rules and errors. It knows nothing of where seconds come from.
"""

from .decision import Decision, Rules
from .log import Record, csv_text
from .memory import Key, Memory
from .search import Proposal, Search
from .searches import SEARCHES, make_search
from .space import Setting, Space
from .tuner import Trial, Tuner, run

__all__ = [
    "SEARCHES",
    "Decision",
    "Key",
    "Memory",
    "Proposal",
    "Record",
    "Rules",
    "Search",
    "Setting",
    "Space",
    "Trial",
    "Tuner",
    "csv_text",
    "make_search",
    "run",
]
