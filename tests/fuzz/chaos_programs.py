"""Draws runs that break: a cluster, workers that mark steps, and what befalls them when."""

from tests.fuzz import drawing

_FAULTS = {"kill worker": 4, "kill ps": 2, "stop": 4, "cut": 3, "cancel": 6, "shape": 3, "full disk": 2, "save": 3}
_STRATEGY_FAULTS = {"kill worker": 5, "stop": 4, "cut": 3}
FAULTS = 20  # of a run
_CUT_BEHIND_KILL = 11  # seeds of this remainder by 12 hold only workers that die right before a server is cut off
BROKEN_INPUT = "an input of this worker is broken"  # what a step says that fails before it has gradients


def draw(seed, faults=FAULTS):
    """The run of a seed, with so many faults."""
    rng = drawing.generator(seed, "chaos")
    kind = "strategy" if seed % 3 == 2 else "session"
    ps, bps = rng.choice((1, 2)), rng.choice(drawing.RATES_BPS)
    total = bps / 32 * rng.choice((0.02, 0.05))  # elements
    count = rng.choice((1, 2, 4))
    sizes = [max(4096, int(total / count)) // 16 * 16 for _ in range(count)]
    run = {"seed": seed, "kind": kind, "ps": ps, "workers": 2, "bps": bps, "sizes": sizes}
    total_bytes = 4 * sum(sizes)
    names = [f"ps{i}" for i in range(ps)] + ["worker0", "worker1"]
    drawn = [_fault(rng, kind, names) for _ in range(faults)]
    if seed % 12 == _CUT_BEHIND_KILL:
        drawn = [_cut_behind_kill(rng, number, names) for number in range(faults)]
    cuts = any(name == "cut" for _, name, *_ in drawn)
    options = [drawing.options(rng, total_bytes, crossing=True) for _ in range(2)]
    return {**run, "options": options, "namespaces": cuts, "faults": drawn}


def _fault(rng, kind, names):
    """[seconds until then, what, of which task, how long]."""
    name = drawing.chosen(rng, _FAULTS if kind == "session" else _STRATEGY_FAULTS)
    task = {"kill worker": names[-2:], "kill ps": names[:-2], "stop": names, "cut": names}.get(name, names[-2:])
    how = {
        "stop": rng.choice((0.1, 0.5, 2.0)),
        "cut": rng.choice((0.2, 1.0, 2.0)),
        "cancel": rng.choice((1, 5, 20, 50, 100, 200)),
    }
    return [round(rng.uniform(0.05, 1.0), 3), name, rng.choice(task), how.get(name)]


def _cut_behind_kill(rng, number, names):
    """As :func:`_fault`, alternately: the connections that a restarted worker needs are just being made when they break."""
    if number % 2 == 0:
        return [round(rng.uniform(0.1, 1.0), 3), "kill worker", rng.choice(names[-2:]), None]
    return [round(rng.uniform(0.0, 0.5), 3), "cut", rng.choice(names[:-2]), rng.choice((1.0, 2.0))]
