"""Bayesian search: a Gaussian process is fitted to what was measured, and the largest expected improvement is next."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from tfsched.errors import TfschedError

from .search import Proposal, Search
from .space import WITHOUT_CREDIT, Setting, Space

# Settings of each policy that are spread over the space before there is a model; half as many where there is no credit.
INITIAL = 4
_RESTARTS = 2
# By how much of log seconds a proposal should improve. With less, noise keeps the search for dozens of samples among
# neighbours of a good setting, at an edge of the space for example.
XI = 0.05
# Where so little is expected beyond XI, what is left is to exploit: XI is 0 then.
LEAST = 0.001
# Of the kernel, in units of the encoded space and of normalised log seconds. With few samples the likelihood would make a
# scale that was hardly tried irrelevant (a length of many times its range), and the search would end before it began.
_LENGTHS = (0.1, 0.5)
_VARIANCES = (0.1, 10.0)


class BayesianSearch(Search):
    """Bayesian optimisation of ByteScheduler, section 4.3: a Gaussian process and expected improvement.

    The process models the logarithm of seconds, for gains and noise are relative, over `Space.encode`: a Matern 5/2 kernel
    with one length, plus noise, whose variance is estimated with the kernel's by maximum likelihood. Proposed is the setting
    that was not yet measured with the largest expected improvement over the lowest mean that the process has at a measured
    one; the lowest sample would be the luckiest one. XI balances exploring and exploiting, as the paper's parameter of 0.1
    does, in units that it does not give.
    """

    def __init__(self, space: Space, seed: int = 0):
        _library()  # says at once what is missing
        self._space = space
        self._random = np.random.default_rng(seed)
        self._initial = _spread(space, self._random)
        self._settings: list[Setting] = []
        self._log_s: list[float] = []
        self._known: set[Setting] = set()  # proposed or measured

    def ask(self) -> Proposal | None:
        while self._initial:
            setting = self._initial.pop()
            if setting not in self._known:
                self._known.add(setting)
                return Proposal(setting, "spread over the space")
        left = [setting for setting in self._space.settings if setting not in self._known]
        if not left:
            return None
        if len(set(self._settings)) < 2:
            setting = left[int(self._random.integers(len(left)))]
            self._known.add(setting)
            return Proposal(setting, "drawn at random, too little was measured")
        place, log_gain = self._most_promising(left)
        self._known.add(left[place])
        gain = -math.expm1(-log_gain)
        return Proposal(left[place], f"expected improvement of any up to {gain:.2%}", gain)

    def tell(self, setting: Setting, seconds: float) -> None:
        self._settings.append(setting)
        self._log_s.append(math.log(seconds))
        self._known.add(setting)

    def _most_promising(self, candidates: list[Setting]) -> tuple[int, float]:
        """The place of what to measure next, and how much of log seconds can be expected of any."""
        skopt = _library()
        points = self._space.encode(self._settings)
        matern = skopt.kernels.Matern(0.3, _LENGTHS, nu=2.5)
        model = skopt.GaussianProcessRegressor(
            skopt.kernels.ConstantKernel(1.0, _VARIANCES) * matern,
            normalize_y=True,
            noise="gaussian",
            n_restarts_optimizer=_RESTARTS,
            random_state=int(self._random.integers(2**31)),
        )
        # Matrices this small gain nothing from threads, which would take cores from a training beside them.
        with skopt.threadpool_limits(1, user_api="blas"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a length at its bound is no news to a user
            model.fit(points, np.array(self._log_s))
            best = float(np.min(model.predict(points)))
            codes = self._space.encode(candidates)
            gains = skopt.gaussian_ei(codes, model, best, xi=XI)
            at_all = skopt.gaussian_ei(codes, model, best, xi=0.0)
        place = int(np.argmax(gains if np.max(gains) > LEAST else at_all))
        return place, float(np.max(at_all))


def _spread(space: Space, random: np.random.Generator) -> list[Setting]:
    """A Latin hypercube for each policy, which has a setting in each part of either scale; all in random order."""

    def values(legal: tuple[int, ...], count: int) -> list[int]:
        places = (random.permutation(count) + random.random(count)) / count * len(legal)
        return [legal[int(place)] for place in places]

    settings = []
    for policy in space.policies:
        count = INITIAL // 2 if policy in WITHOUT_CREDIT else INITIAL
        pairs = zip(values(space.partitions, count), values(space.credits, count), strict=True)
        settings += [space.nearest(Setting(*pair, policy)) for pair in pairs]
    return [setting for place in random.permutation(len(settings)) if (setting := settings[place])]


class _Library:
    """The parts of scikit-optimize that are used."""

    def __init__(self) -> None:
        from skopt.acquisition import gaussian_ei
        from skopt.learning import GaussianProcessRegressor
        from skopt.learning.gaussian_process import kernels
        from threadpoolctl import threadpool_limits  # scikit-learn needs it

        self.threadpool_limits = threadpool_limits
        self.gaussian_ei, self.GaussianProcessRegressor, self.kernels = gaussian_ei, GaussianProcessRegressor, kernels


def _library() -> Any:
    try:
        return _Library()
    except ImportError as error:
        raise TfschedError(
            f"The Bayesian search needs scikit-optimize, which cannot be imported ({error}); "
            "run pip install 'tfsched[tune]', or choose random or grid."
        ) from None
