"""Draws programs of two clients that train the same variables at once, asynchronously or by SyncReplicasOptimizer.

Every gradient is 1, so that a variable counts its updates. What each read must have seen is model.py's business.
"""

from tests.fuzz import drawing

_ACTIONS = {"train": 12, "read": 6, "fetch": 4, "evaluate": 4, "save": 2, "drain": 2, "open": 2, "configure": 1, "pause": 1}
_SYNC_ACTIONS = {"read": 6, "fetch": 4, "evaluate": 4, "save": 2, "drain": 2, "configure": 1, "pause": 1}


def draw(seed, shape):
    """The program of a seed."""
    rng = drawing.generator(seed, "counted")
    synchronous = shape["kind"] == "synchronous"
    total = shape["bps"] / 32 * rng.choice((0.02, 0.05, 0.1))  # elements
    count = rng.choice((1, 2, 4))
    sizes = [max(2500, min(500_000, int(total / count * rng.choice((0.5, 1.0, 1.5))))) for _ in range(count)]
    model = {"sizes": sizes, "optimizer": rng.choice(("sgd", "momentum"))}
    program = {**shape, "seed": seed, "model": model}
    # Steps of all workers are drawn together with SyncReplicasOptimizer: one alone would wait for ever.
    steps = rng.randint(3, 8)
    program["workers_do"] = [_actions(rng, sum(sizes) * 4, steps, synchronous) for _ in range(shape["workers"])]
    return program


def _actions(rng, total_bytes, steps, synchronous):
    drawn = [["open", "new", drawing.session_options(rng, total_bytes)]]
    if synchronous:
        for _ in range(steps):
            drawn.append(["train", 1])
            if rng.random() < 0.6:
                drawn.append(_one(rng, drawing.chosen(rng, _SYNC_ACTIONS), total_bytes))
        return drawn
    if rng.random() < 0.5:
        drawn.append(_one(rng, rng.choice(("read", "save", "drain", "evaluate")), total_bytes))
    for _ in range(rng.randint(6, 16)):
        drawn.append(_one(rng, drawing.chosen(rng, _ACTIONS), total_bytes))
    return [*drawn, ["train", 1], ["read", "own"]]


def _one(rng, name, total_bytes):
    if name == "train":
        return [name, rng.choice((1, 1, 2, 4))]
    if name in ("read", "save", "evaluate"):
        return [name, rng.choice(("own", "own", "plain", "other"))]
    if name == "fetch":
        return [name, rng.choice(("own", "plain", "other")), rng.randrange(1 << 10)]
    if name == "open":
        kind = rng.choice(("new", "same"))
        return [name, kind, drawing.session_options(rng, total_bytes) if kind == "new" else None]
    if name == "configure":
        return [name, drawing.change(rng)]
    return [name, rng.choice((0.005, 0.02, 0.1))] if name == "pause" else [name]
