"""The DAGs that ordering_gap.py compares orderings on: random, model-shaped and adversarial, small enough for proofs."""

from __future__ import annotations

import pathlib
import random
import sys
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tfsched.ordering import Dag, Op, Resource, get, list_schedule
from tfsched.ordering.exact import solve

CPUS = (Resource("cpu", "compute"), Resource("cpu1", "compute"))


def _times(draw: random.Random) -> float:
    """µs of one op: most are short, some ten times longer."""
    return float(draw.choice((1, 1, 1, 4, 10)) * draw.randrange(10, 100))


def _dag(draw: random.Random, nodes: list[Op], links: int = 1) -> Dag:
    """Recvs in a random order of the file, as TensorFlow lists them."""
    recvs = [op for op in nodes if op.resource.startswith("link")]
    draw.shuffle(recvs)
    computation = [op for op in nodes if not op.resource.startswith("link")]
    return Dag([*CPUS, *(Resource(f"link{i}", "link") for i in range(links))], recvs + computation)


def scattered(draw: random.Random, recvs: int) -> Dag:
    """Any op reads one or two of the latest twelve, and any recv."""
    links = draw.randrange(1, 3)
    nodes = [Op(f"r{k}", f"link{draw.randrange(links)}", (), _times(draw)) for k in range(recvs)]
    for k in range(2 * recvs):
        inputs = set(draw.sample([op.name for op in nodes[-12:]], draw.randrange(1, 3))) | {f"r{draw.randrange(recvs)}"}
        nodes.append(Op(f"c{k}", "cpu", tuple(sorted(inputs)), _times(draw)))
    return _dag(draw, nodes, links)


def tangled(draw: random.Random, recvs: int) -> Dag:
    """As scattered, with up to four inputs an op, and one or two compute devices, whose order no ordering decides."""
    links, devices = draw.randrange(1, 3), draw.randrange(1, 3)
    nodes = [Op(f"r{k}", f"link{draw.randrange(links)}", (), float(draw.randrange(1, 30))) for k in range(recvs)]
    for k in range(2 * recvs):
        inputs = set(draw.sample([op.name for op in nodes[-12:]], draw.randrange(1, 4)))
        if draw.random() < 0.7:
            inputs.add(f"r{draw.randrange(recvs)}")
        nodes.append(Op(f"c{k}", f"cpu{draw.randrange(devices) or ''}", tuple(sorted(inputs)), float(draw.randrange(1, 30))))
    return _dag(draw, nodes, links)


def layered(draw: random.Random, recvs: int) -> Dag:
    """Layers of one to four ops, each of which reads some of the layer before."""
    nodes = [Op(f"r{k}", "link0", (), _times(draw)) for k in range(recvs)]
    before: list[str] = []
    k = 0
    while k < recvs:
        layer = []
        for _ in range(min(draw.randrange(1, 5), recvs - k)):
            inputs = draw.sample(before, min(len(before), draw.randrange(1, 3)))
            nodes.append(Op(f"c{k}", "cpu", (f"r{k}", *sorted(inputs)), _times(draw)))
            layer.append(f"c{k}")
            k += 1
        before = layer
    return _dag(draw, nodes)


def sequential(draw: random.Random, recvs: int) -> Dag:
    """A perceptron or VGG: a chain, with small tensors first and large ones last."""
    nodes = []
    for k in range(recvs):
        nodes.append(Op(f"r{k}", "link0", (), _times(draw) * (1 + k)))
        nodes.append(Op(f"c{k}", "cpu", (f"r{k}",) + ((f"c{k - 1}",) if k else ()), _times(draw) * (1 + recvs - k)))
    return _dag(draw, nodes)


def residual(draw: random.Random, recvs: int) -> Dag:
    """ResNet: blocks of a branch with two or three recvs and a short cut with one or none."""
    nodes: list[Op] = [Op("c", "cpu", (), _times(draw))]
    last, k = "c", 0
    while k < recvs:
        ends = []
        for length in (draw.choice((2, 3)), draw.choice((0, 1))):
            end = last
            for _ in range(min(length, recvs - k)):
                nodes += [Op(f"r{k}", "link0", (), _times(draw)), Op(f"c{k}", "cpu", (f"r{k}", end), _times(draw))]
                end, k = f"c{k}", k + 1
            ends.append(end)
        last = f"j{k}"
        nodes.append(Op(last, "cpu", tuple(dict.fromkeys(ends)), 1.0))
    return _dag(draw, nodes)


def inception(draw: random.Random, recvs: int) -> Dag:
    """Inception: modules of four branches with one or two recvs each, that are concatenated."""
    nodes: list[Op] = [Op("c", "cpu", (), _times(draw))]
    last, k = "c", 0
    while k < recvs:
        ends = []
        for _ in range(4):
            end = last
            for _ in range(min(draw.choice((1, 2)), recvs - k)):
                nodes += [Op(f"r{k}", "link0", (), _times(draw)), Op(f"c{k}", "cpu", (f"r{k}", end), _times(draw))]
                end, k = f"c{k}", k + 1
            ends.append(end)
        last = f"j{k}"
        nodes.append(Op(last, "cpu", tuple(dict.fromkeys(ends)), 1.0))
    return _dag(draw, nodes)


def two_tailed(draw: random.Random, recvs: int) -> Dag:
    """Half of the recvs feed much computation at once and nothing later, half little at once and a long chain behind it."""
    nodes = []
    for k in range(recvs):
        nodes.append(Op(f"r{k}", "link0", (), _times(draw)))
        if k % 2:
            nodes.append(Op(f"c{k}", "cpu", (f"r{k}",), 8 * _times(draw)))
        else:
            nodes.append(Op(f"c{k}", "cpu", (f"r{k}",) + ((f"c{k - 2}",) if k else ()), _times(draw)))
    return _dag(draw, nodes)


def against(name: str, steps: int = 25) -> Callable[[random.Random, int], Dag]:
    """A builder of dags that an ordering is bad at: times and recvs of a small dag are changed as long as its gap grows."""

    def build(draw: random.Random, recvs: int) -> Dag:
        dag = scattered(draw, min(recvs, 8))
        worst = _gap(dag, name)
        for _ in range(steps):
            ops = list(dag.ops)
            for i in draw.sample(range(len(ops)), 2):
                ops[i] = ops[i]._replace(time_us=_times(draw))
            trial = Dag(dag.resources.values(), ops)
            gap = _gap(trial, name)
            if gap >= worst:
                dag, worst = trial, gap
        return dag

    return build


def _gap(dag: Dag, name: str) -> float:
    best = solve(dag, time_limit_s=2.0)
    return list_schedule(dag, get(name)(dag)).makespan_us / best.makespan_us


# Kind -> shape -> builder of (random source, number of recvs).
CORPUS: dict[str, dict[str, Callable[[random.Random, int], Dag]]] = {
    "random": {"scattered": scattered, "tangled": tangled, "layered": layered},
    "model-shaped": {"sequential": sequential, "residual": residual, "inception": inception},
    "adversarial": {
        "two-tailed": two_tailed,
        "against tio": against("tio"),
        "against tao": against("tao"),
        "against layer": against("layer"),
        "against pace": against("pace"),
    },
}
