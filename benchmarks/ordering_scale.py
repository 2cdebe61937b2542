"""Times TIO and TAO on DAGs of 1,000, 10,000 and 100,000 ops, and against the literal algorithms.

Usage: python benchmarks/ordering_scale.py [--ops 1000 10000 100000] [--shapes chain resnet random]
                                           [--literal-ops 1000] [--links 1] [--gbps 1] [--seed 0]

One recv per 20 ops. Columns, in seconds: `load` reading and checking the JSON, `tio`, `tao`, `pace` and `lookahead` the
orderings; `growth` is tio + tao over the row of ten times fewer ops (10.0 would be linear). `vs tao` is how much shorter
lookahead's list schedule is than TAO's.
`literal` is the line-by-line TIO + TAO of tests/ordering/literal.py, whose cost grows with
ops x recvs^2; it runs up to --literal-ops only and its priorities are checked to be equal. `ratio`
is literal over fast.
With --commands: whole commands on the largest DAGs instead, with what they take to start.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tfsched.ordering import Dag, get, list_schedule  # noqa: E402

T = TypeVar("T")
OPS_PER_RECV = 20


class Builder:
    """Collects ops; recvs and computation get random sizes and times."""

    def __init__(self, links: int, seed: int, gbps: float) -> None:
        self.draw = random.Random(seed)
        self.bandwidth_bps = gbps * 1e9
        self.links = [f"link{i}" for i in range(links)]
        self.ops: list[dict[str, Any]] = []

    def recv(self) -> str:
        """Add a recv without inputs and return its name."""
        name = f"recv{len(self.ops)}"
        # Sizes of a few kinds, as layers repeat: ties are as frequent as in real models.
        size_bytes = self.draw.choice([4096, 36864, 147456, 589824, 2359296])
        link = self.draw.choice(self.links)
        self.ops.append({"name": name, "resource": link, "bytes": size_bytes, "inputs": []})
        return name

    def op(self, *inputs: str) -> str:
        """Add a compute op and return its name."""
        name = f"op{len(self.ops)}"
        time_us = float(self.draw.randrange(1, 2000))
        self.ops.append({"name": name, "resource": "cpu", "time_us": time_us, "inputs": list(inputs)})
        return name

    def json(self) -> str:
        """Return the dag as text, its recvs first (where a partition lists them is arbitrary)."""
        resources: dict[str, Any] = {"cpu": {"kind": "compute"}}
        resources |= {link: {"kind": "link", "bandwidth_bps": self.bandwidth_bps} for link in self.links}
        recvs = [op for op in self.ops if "bytes" in op]
        self.draw.shuffle(recvs)
        ops = recvs + [op for op in self.ops if "bytes" not in op]
        return json.dumps({"format": "tfsched-dag/1", "resources": resources, "ops": ops})


def chain(builder: Builder, ops: int) -> None:
    """One path; every 19 ops it needs another recv."""
    last = builder.op()
    while len(builder.ops) < ops:
        last = builder.op(last, builder.recv())
        for _ in range(OPS_PER_RECV - 2):
            last = builder.op(last)


def resnet(builder: Builder, ops: int) -> None:
    """Blocks of two branches that join; each recv first passes an op of its own (a cast)."""
    last = builder.op()
    while len(builder.ops) < ops:
        ends = []
        for length in (3, 1):
            end = last
            for _ in range(length):
                end = builder.op(end, builder.op(builder.recv()))
                for _ in range(OPS_PER_RECV - 3):
                    end = builder.op(end)
            ends.append(end)
        last = builder.op(*ends)


def scattered(builder: Builder, ops: int) -> None:
    """Random: each op reads 1-3 of the latest 200 ops or recvs; almost every op has its own dep."""
    names: list[str] = []
    while len(builder.ops) < ops:
        if len(names) % OPS_PER_RECV == 0:
            names.append(builder.recv())
        else:
            latest = names[-200:]
            wanted = min(len(latest), builder.draw.randrange(1, 4))
            names.append(builder.op(*builder.draw.sample(latest, wanted)))


SHAPES: dict[str, Callable[[Builder, int], None]] = {
    "chain": chain,
    "resnet": resnet,
    "random": scattered,
}


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds a call took, and its result."""
    start_s = time.perf_counter()
    result = function()
    return time.perf_counter() - start_s, result


def load_literal() -> ModuleType:
    """Import the reference algorithms of the tests by path."""
    path = ROOT / "tests" / "ordering" / "literal.py"
    spec = importlib.util.spec_from_file_location("tfsched_literal", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def time_commands(args: argparse.Namespace) -> None:
    """Print how long the commands take on the DAGs, from start to end; of the largest of --ops."""
    commands = ("order", "simulate", "explain")
    print("| shape | ops | recvs | " + " | ".join(f"{command} s" for command in commands) + " | peak GB |")
    print("|---" * (4 + len(commands)) + "|")
    for shape in args.shapes:
        builder = Builder(args.links, args.seed, args.gbps)
        SHAPES[shape](builder, max(args.ops))
        recvs = sum("bytes" in op for op in builder.ops)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(builder.json())
            file.flush()
            words = [[sys.executable, "-m", "tfsched.cli", command, file.name, "--quiet"] for command in commands]
            taken_s = [timed(lambda one=one: subprocess.run(one, cwd=ROOT, check=True, timeout=600))[0] for one in words]  # type: ignore[misc]
        peak_gb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
        times = " | ".join(f"{one_s:.1f}" for one_s in taken_s)
        print(f"| {shape} | {len(builder.ops):,} | {recvs:,} | {times} | {peak_gb:.2f} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Times orderings on growing DAGs.")
    parser.add_argument("--ops", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--shapes", nargs="+", choices=sorted(SHAPES), default=list(SHAPES))
    parser.add_argument("--literal-ops", type=int, default=1_000)
    parser.add_argument("--links", type=int, default=1)
    parser.add_argument("--gbps", type=float, default=1.0, help="of each link; 0.3 makes sending as long as computing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", action="store_true", help="time `tfsched order`, `simulate` and `explain` instead")
    args = parser.parse_args()
    if args.commands:
        time_commands(args)
        return
    literal = load_literal()
    print("| shape | ops | recvs | load s | tio s | tao s | growth | pace s | lookahead s | vs tao | literal s | ratio |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for shape in args.shapes:
        before_s = 0.0
        for ops in args.ops:
            builder = Builder(args.links, args.seed, args.gbps)
            SHAPES[shape](builder, ops)
            text = builder.json()
            load_s, dag = timed(lambda text=text: Dag.from_json(text))  # type: ignore[misc]
            tio_s, tio = timed(lambda dag=dag: get("tio")(dag))  # type: ignore[misc]
            tao_s, tao = timed(lambda dag=dag: get("tao")(dag))  # type: ignore[misc]
            pace_s, _ = timed(lambda dag=dag: get("pace")(dag))  # type: ignore[misc]
            lookahead_s, lookahead = timed(lambda dag=dag: get("lookahead")(dag))  # type: ignore[misc]
            spans_us = [list_schedule(dag, order).makespan_us for order in (tao, lookahead)]
            shorter = f"{100 * (1 - spans_us[1] / spans_us[0]):.2f} %"
            fast_s = tio_s + tao_s
            growth = f"{fast_s / before_s:.1f}" if before_s else "-"
            before_s = fast_s
            slow, ratio = "-", "-"
            if ops <= args.literal_ops:
                literal_s, same = timed(
                    lambda dag=dag, tio=tio, tao=tao: (  # type: ignore[misc]
                        literal.tio(dag) == tio and literal.tao(dag) == tao
                    )
                )
                if not same:
                    sys.exit(f"{shape} with {ops} ops: the fast and literal priorities differ")
                slow, ratio = f"{literal_s:.2f}", f"{literal_s / fast_s:.0f}"
            print(
                f"| {shape} | {len(dag.ops):,} | {len(dag.recvs):,} | {load_s:.3f} | {tio_s:.3f} "
                f"| {tao_s:.3f} | {growth} | {pace_s:.3f} | {lookahead_s:.2f} | {shorter} | {slow} | {ratio} |",
                flush=True,
            )
    print(f"\n'-': not measured (literal: more than {args.literal_ops:,} ops; growth: first row).")


if __name__ == "__main__":
    main()
