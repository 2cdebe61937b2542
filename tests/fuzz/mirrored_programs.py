"""Draws programs of workers under MultiWorkerMirroredStrategy.

Two workers' sums have the same bits in any order, so what stock TensorFlow gives is determined, and compared bit for bit.
Three workers round their gradients to so few bits that their sums are exact, which makes it so for them, too.
"""

import itertools

from tests.fuzz import drawing

_RULES = ("descent", "momentum", "sgd", "adam", "adam", "moving averages", "adamw", "clip norms", "loss scale", "two")
_ACTIONS = {
    "step": 12,
    "values": 4,
    "eager": 3,
    "one": 4,
    "evaluate": 4,
    "new_function": 2,
    "checkpoint": 2,
    "save": 2,
    "restore": 2,
    "assign": 2,
    "assign_in_function": 2,
    "drain": 2,
    "options": 4,
    "block": 2,
    "late": 3,
    "configure": 1,
}


def draw(seed, shape):
    """The program of a seed; all workers run it, each with options of its own."""
    rng = drawing.generator(seed, "mirrored")
    widths = drawing.widths(rng, shape["bps"])
    total_bytes = sum(4 * a * b for a, b in itertools.pairwise(widths))
    model = {
        "widths": widths,
        "rule": rng.choice(_RULES),
        "clip": rng.random() < 0.2,
        "shows_norm": rng.random() < 0.1,
        "bytes_per_pack": rng.choice((0, 0, total_bytes // 3)),
    }

    def options():
        """Mostly the same for all: else the all-reduces are stock's."""
        own = drawing.options(rng, total_bytes)
        drawn = [own] * shape["workers"]
        chance = rng.random()
        if chance < 0.15:
            drawn[rng.randrange(len(drawn))] = drawing.options(rng, total_bytes)
        elif chance < 0.25:
            drawn[rng.randrange(len(drawn))] = None
        elif chance < 0.45:
            drawn = [{**own, "barrier": rng.random() < 0.5} for _ in drawn]
        return drawn

    actions, saved = [], 0
    if rng.random() < 0.3:  # before tfsched is asked for anything
        actions.append(rng.choice((["step", 1], ["values"], ["evaluate"], ["save", 0])))
        saved = int(actions[0][0] == "save")
    actions.append(["options", options()])
    for _ in range(rng.randint(10, 22)):
        name = drawing.chosen(rng, _ACTIONS)
        if name in ("step", "one"):
            actions.append([name, rng.choice((1, 1, 2, 3)) if name == "step" else rng.randrange(1 << 10)])
        elif name in ("options", "block"):
            actions.append([name, options()])
        elif name == "save":
            actions.append([name, saved])
            saved += 1
        elif name == "restore":
            if saved:
                actions.append([name, rng.randrange(saved)])
        elif name == "assign":
            actions.append([name, rng.randrange(1 << 10), rng.randint(-3, 3)])
        elif name == "late":
            actions.append([name, rng.randrange(shape["workers"]), rng.choice((0.02, 0.1, 0.3))])
        elif name == "configure":
            actions.append([name, drawing.change(rng)])
        else:
            actions.append([name])
    if rng.random() < 0.2:
        # Somebody is lost, and the program is started again from its last checkpoint.
        actions += [["save", saved], ["step", rng.choice((1, 2))], ["lose", rng.randrange(shape["workers"])]]
        actions += [["options", options()], ["restore", saved], ["values"]]
    actions += [["step", 2], ["one", rng.randrange(1 << 10)], ["values"]]
    return {**shape, "seed": seed, "client": "worker0", "model": model, "actions": actions}
