"""The search strategies by name."""

from __future__ import annotations

from tfsched.errors import TfschedError

from .bayesian import BayesianSearch
from .grid import GridSearch
from .random_search import RandomSearch
from .search import Search
from .space import Space

SEARCHES: dict[str, type[BayesianSearch] | type[RandomSearch] | type[GridSearch]] = {
    "bayesian": BayesianSearch,
    "random": RandomSearch,
    "grid": GridSearch,
}


def make_search(name: str, space: Space, seed: int = 0) -> Search:
    """The strategy of that name. Raises TfschedError for an unknown one, or if what it needs is not installed."""
    if name not in SEARCHES:
        raise TfschedError(f"The search is {name!r}; choose one of {', '.join(SEARCHES)}.")
    return SEARCHES[name](space, seed)
