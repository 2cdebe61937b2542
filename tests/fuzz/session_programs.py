"""Draws programs of one client: training in a graph, and everything that reads or writes beside it, in any order.

A program is a dict that JSON can hold; its "actions" are lists that begin with a name, which in_session.py runs. Stock
TensorFlow's result is determined: one action ends before the next begins.
"""

import itertools

from tests.fuzz import drawing

# What may come after a session was opened; before the first step, too.
_ACTIONS = {
    "train": 10,
    "train_some": 3,
    "evaluate": 4,
    "values": 6,
    "fetch": 5,
    "assign": 3,
    "save": 5,
    "restore": 2,
    "drain": 2,
    "configure": 1,
    "open": 4,
    "close": 1,
    "monitored": 2,
    "stock_values": 2,
    "fault": 1,
}
_SESSIONS = 3  # at most, at a time


def draw(seed, shape):
    """The program of a seed."""
    rng = drawing.generator(seed, "session")
    clients = [f"worker{index}" for index in range(shape["workers"]) if f"worker{index}" not in shape["stock"]]
    masters = [f"ps{index}" for index in range(shape["ps"]) if f"ps{index}" not in shape["stock"]] + clients * 3
    widths = drawing.widths(rng, shape["bps"])
    model = {
        "widths": widths,
        "optimizer": rng.choice(drawing.OPTIMIZERS),
        "some": rng.choice(drawing.OPTIMIZERS),
        "towers": rng.randint(1, shape["workers"]),
        "decay": rng.random() < 0.4,
        "clip": rng.random() < 0.15,
    }
    program = {**shape, "seed": seed, "client": rng.choice(clients), "model": model}
    program["actions"] = _Drawing(rng, program, masters).actions(rng.randint(5, 14))
    return program


class _Drawing:
    """Draws actions that make sense in turn: what is restored was saved, what runs is open."""

    def __init__(self, rng, program, masters):
        self._rng, self._program, self._masters = rng, program, masters
        self._bytes = sum(4 * a * b for a, b in itertools.pairwise(program["model"]["widths"]))
        self._open, self._opened, self._saved, self._faults = [], 0, 0, rng.random() < 0.15
        self._drawn = []

    def actions(self, count):
        """The list."""
        self._open_one()
        self._drawn.append(["init", self._open[0]])
        if self._rng.random() < 0.5:  # some reader or writer before any training
            self._draw_one(self._rng.choice(("drain", "save", "values", "evaluate", "fetch", "assign", "open")))
        for _ in range(count):
            self._draw_one(drawing.chosen(self._rng, _ACTIONS))
        # The end of all: what a reader finds right after a step has returned.
        self._draw_one("train")
        self._draw_one(self._rng.choice(("values", "save")))
        self._draw_one("values")
        return self._drawn

    def _session(self):
        if not self._open:
            self._open_one()
        return self._rng.choice(self._open)

    def _open_one(self, kind=None):
        if len(self._open) == _SESSIONS:
            self._drawn.append(["close", self._open.pop(0)])
        number, rng = self._opened, self._rng
        self._opened += 1
        kind = kind or ("new" if number == 0 else rng.choice(("new", "same", "plain")))
        # "same": the last config once more, that is the same client; "plain": without tfsched, on the same masters.
        options = drawing.session_options(rng, self._bytes) if kind == "new" else None
        self._drawn.append(["open", number, kind, options, rng.choice(self._masters)])
        self._open.append(number)

    def _draw_one(self, name):
        rng, draw = self._rng, self._drawn.append
        if name == "open":
            self._open_one()
        elif name == "close":
            if len(self._open) > 1:
                draw(["close", self._open.pop(rng.randrange(len(self._open)))])
        elif name == "train":
            draw([name, self._session(), rng.choice((1, 1, 1, 2, 3))])
        elif name in ("fetch", "assign"):
            draw([name, self._session(), rng.randrange(1 << 10), *([rng.randint(-3, 3)] if name == "assign" else [])])
        elif name == "save":
            draw([name, self._session(), self._saved])
            self._saved += 1
        elif name == "restore":
            if self._saved:
                draw([name, self._session(), rng.randrange(self._saved)])
        elif name == "configure":
            draw([name, rng.choice((None, self._session())), drawing.change(rng)])
        elif name == "monitored":
            options = drawing.session_options(rng, self._bytes) if rng.random() < 0.9 else None
            draw([name, options, rng.randint(3, 6), rng.randint(1, 3), rng.random() < 0.3])
        elif name == "stock_values":
            if self._program["stock"]:
                draw([name])
        elif name == "fault":
            if self._faults:
                self._fault()
        else:
            draw([name, self._session()])

    def _fault(self):
        """A task is lost right after a step has returned; what comes back is restored from a checkpoint."""
        rng, program = self._rng, self._program
        names = [f"ps{i}" for i in range(program["ps"])] + [f"worker{i}" for i in range(program["workers"])]
        if self._saved == 0:
            self._draw_one("save")
        lost = rng.choice(names)
        self._draw_one("train")
        self._drawn.append(["lose", lost])
        self._open.clear()
        self._open_one("new")
        # A server that is new has no variables: everything is restored.
        self._drawn.append(["restore", self._open[0], rng.randrange(self._saved)])
