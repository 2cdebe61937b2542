"""How long the pass takes on a real training graph: ``python benchmarks/rewrite_cost.py [model ...]``."""

from __future__ import annotations

import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

RUNS = 5
# Ops that the placer puts beside their variable.
_OF_VARIABLES = ("VarHandleOp", "ReadVariableOp", "ResourceApply", "AssignVariable", "VarIsInit")
WORKER = "/job:worker/replica:0/task:0/device:CPU:0"


def placed_graph(model: str) -> tuple[Any, list[str]]:
    """The model's training graph with one parameter server, placed as the placer would, and its fetches."""
    import tensorflow as tf

    from tfsched.bench import graphs, models

    tf.compat.v1.disable_eager_execution()
    built = graphs.build_step(models.find_model(model), "train", 2, 1, 1, 0)
    graph_def = built.graph.as_graph_def()
    for node in graph_def.node:
        if "/replica" not in node.device:
            node.device = node.device.replace("/task:", "/replica:0/task:", 1)
        if node.op.startswith(_OF_VARIABLES):
            node.device = "/job:ps/replica:0/task:0/device:CPU:0"
        elif not node.device:
            node.device = WORKER
        elif "device" not in node.device:
            node.device += "/device:CPU:0"
    fetches = [one.name for one in tf.nest.flatten(built.fetches["step"])]
    return graph_def, fetches


def median_s(function: Callable[[], Any]) -> float:
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    from tfsched._options import Options
    from tfsched.grappler.rewrite import rewrite

    print(f"{'model':<14}{'nodes':>8}{'ordered':>9}{'ordering':>10}{'pass s':>9}{'again s':>9}   median of {RUNS}")
    for model in sys.argv[1:] or ["resnet152"]:
        graph_def, fetches = placed_graph(model)
        for ordering in ("tio", "layer"):
            options = Options(ordering=ordering)
            report: Any = None
            once: Any = None

            def run(source: Any = graph_def, options: Options = options, fetches: list[str] = fetches) -> None:
                nonlocal report, once
                copy = type(source)()
                copy.CopyFrom(source)
                once, report = rewrite(copy, options, fetches)

            first_s = median_s(run)
            # Grappler calls the pass twice: the second time on its own output.
            rewritten = once
            again_s = median_s(lambda run=run, rewritten=rewritten: run(rewritten))
            print(f"{model:<14}{len(graph_def.node):>8}{report.ordered:>9}{ordering:>10}{first_s:>9.3f}{again_s:>9.3f}")


if __name__ == "__main__":
    main()
