"""Draws the program of a seed, of whichever kind."""

import itertools

from tests.fuzz import counted_programs, drawing, mirrored_programs, session_programs, strategy_programs

_DRAW = {
    "session": session_programs.draw,
    "asynchronous": counted_programs.draw,
    "synchronous": counted_programs.draw,
    "strategy": strategy_programs.draw,
    "mirrored": mirrored_programs.draw,
}


def draw(seed):
    """The program of a seed: a dict that JSON can hold."""
    shape = drawing.shape(seed)
    return _DRAW[shape["kind"]](seed, shape)


def draw_many(first_seed, count, kinds=drawing.KINDS):
    """So many programs of these kinds, of the seeds from ``first_seed`` on."""
    seeds = (seed for seed in itertools.count(first_seed) if drawing.shape(seed)["kind"] in kinds)
    return [draw(seed) for seed in itertools.islice(seeds, count)]
