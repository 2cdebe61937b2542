"""What every kind of program draws alike: the cluster it runs on, the options of a session, sizes of variables."""

import random

BLOCK = 20  # so many seeds in a row run on clusters of one shape, which live on from program to program
KINDS = ("session", "asynchronous", "strategy", "session", "synchronous")  # of blocks in turn
MIRRORED_FROM = 1_000_000  # from this seed on all programs are of workers that all-reduce
POLICIES = ("tictac", "bytescheduler", "p3", "fifo", "prophet")
# Bits per second. With the sizes below a window, from a step's return to its last update, lasts 10 to 500 ms.
RATES_BPS = (2e7, 5e7, 1e8, 2e8)
OPTIMIZERS = ("sgd", "momentum", "adam", "adagrad", "rmsprop", "ftrl")


def generator(seed, purpose):
    """Random numbers for one purpose: what another purpose draws does not move them."""
    return random.Random(f"{seed}/{purpose}")


def shape(seed):
    """The kind of program and the cluster that a whole block of seeds shares."""
    draw = generator(seed // BLOCK, "shape")
    if seed >= MIRRORED_FROM:
        return {"kind": "mirrored", "ps": 0, "workers": draw.choice((2, 2, 3)), "bps": draw.choice(RATES_BPS), "stock": []}
    kind = KINDS[seed // BLOCK % len(KINDS)]
    ps, workers = draw.choice((1, 2)), draw.choice((1, 2))
    if kind in ("asynchronous", "synchronous"):
        workers = 2
    stock = []  # tasks without tfsched
    if draw.random() < 0.3:
        if ps == 2:
            stock.append("ps1")
        elif workers == 2 and kind == "session":
            stock.append("worker1")
    return {"kind": kind, "ps": ps, "workers": workers, "bps": draw.choice(RATES_BPS), "stock": stock}


def options(draw, total_bytes, crossing=None):
    """Options of a session, mostly ones that cross the barrier."""
    crosses = draw.random() < 0.85 if crossing is None else crossing
    drawn = {
        "barrier": not crosses,
        "policy": draw.choice(POLICIES),
        "ordering": draw.choice(("tio", "tio", "layer", "random")),
    }
    if draw.random() < 0.6:
        # Not too many pieces: the pass would take longer than the program.
        least = max(4096, total_bytes // 64)
        drawn["partition_bytes"] = min(draw.choice((1, 2, 8)) * least, 1 << 20)
        drawn["credit_bytes"] = drawn["partition_bytes"] * draw.choice((1, 4))
    else:
        drawn["credit_bytes"] = draw.choice((0, 1, 100_000, 1_000_000))
    return drawn


def session_options(draw, total_bytes):
    """Options of a session, some of which have a plan that groups transfers: a number by which they are drawn."""
    drawn = options(draw, total_bytes)
    # Where the barrier is crossed few transfers can be grouped.
    if not drawn["barrier"] and drawn["ordering"] != "random":
        return drawn
    return {**drawn, "groups": drawn["credit_bytes"] + drawn.get("partition_bytes", 0)}


def change(draw):
    """Arguments of tfsched.configure."""
    kind = draw.randrange(4)
    if kind == 0:
        return {"policy": draw.choice((*POLICIES, "graph"))}
    if kind == 1:
        return {"credit_bytes": draw.choice((-1, 0, 50_000, 1_000_000))}
    if kind == 2:
        return {"rate_bps": draw.choice((0, 3e7, 1e8))}
    return {"policy": "graph", "credit_bytes": -1, "rate_bps": 0}


def widths(draw, bps):
    """Widths of a chain of layers whose weights take a tenth of a second or so on a link of that rate."""
    layers = draw.choice((2, 3, 4, 5))
    total = bps / 32 * draw.choice((0.03, 0.06, 0.12))  # elements
    middle = max(50, min(700, int((total / layers) ** 0.5)))
    return [max(48, int(middle * draw.choice((0.5, 1.0, 1.0, 1.5)))) for _ in range(layers + 1)]


def chosen(draw, weighted):
    """One of the keys, as often as its weight says."""
    return draw.choices(list(weighted), list(weighted.values()))[0]
