"""Whether TAO is as good from a tf.function's trace as from a session's: both orders of the same model, on the same DAG.

One parameter server and one worker, on hosts of their own with a limited link between them (network namespaces, needs root),
run the model's step as a session's graph and as a tf.function under ParameterServerStrategy; both are traced. The two TAO
orders are evaluated on the session's DAG with the session's times, and on the function's with the function's, by the same
list schedule. The ratios are the makespan of the function's order by that of the session's: up to 1.03 its trace is as good.

    python benchmarks/trace_apis.py --models mlp24,resnet50 --phases forward,train
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

_ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

from tfsched.bench.ports import free_ports  # noqa: E402

WORKER = "/job:worker/replica:0/task:0"
_LIMIT_S = 1800.0


def serve(job: str, cluster: dict[str, list[str]]) -> None:
    """A task; ends when its stdin does."""
    import tensorflow as tf

    import tfsched

    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=4)
    server = tfsched.Server(cluster, job_name=job, task_index=0, config=config)
    print(server.target, flush=True)
    sys.stdin.read()
    os._exit(0)


def traced_session(model: Any, phase: str, batch: int, steps: int, target: str) -> Any:
    """The trace of the bench's session step."""
    import tensorflow as tf

    import tfsched
    from tfsched.bench.graphs import build_step

    built = build_step(model, phase, batch, ps=1, workers=1)
    with tf.compat.v1.Session(target, graph=built.graph, config=tfsched.session_config()) as session:
        session.run(built.initializer)
        session.run(built.fetches["step"])
        return tfsched.trace_steps(session, built.fetches["step"], steps=steps)


def traced_function(model: Any, phase: str, batch: int, steps: int, coordinator: Any) -> Any:
    """The trace of the bench's function step."""
    import tfsched
    from tfsched.bench.functions import make_network, make_step

    network = make_network(model, coordinator.strategy, seed=0)
    step = make_step(model, network, phase, batch, coordinator.strategy)
    tfsched.enable()
    try:
        return tfsched.trace_function(step, steps=steps, coordinator=coordinator)
    finally:
        tfsched.disable()


def parts(name: str) -> list[str]:
    """ "worker0/conv1/Conv2D/ReadVariableOp:0@/job:..." -> its path, the last first."""
    return name.partition("@")[0].split("/")[::-1]


def pulls(trace: Any) -> list[str]:
    """The transfers to the worker."""
    return [name for name in trace.links if name.endswith("@" + WORKER) and trace.sizes.get(name, 0) > 0]


def alike(one: str, other: str) -> int:
    """How many parts two names end in alike."""
    same = 0
    for a, b in zip(parts(one), parts(other), strict=False):
        if a != b:
            break
        same += 1
    return same


def matched(ours: Iterable[str], theirs: Iterable[str]) -> dict[str, str]:
    """Our transfer -> theirs of the same variable: the name scopes differ, what they end in does not."""
    left = list(theirs)
    found: dict[str, str] = {}
    for name in sorted(ours, key=lambda one: -len(parts(one))):
        best, same = max(((other, alike(name, other)) for other in left), key=lambda pair: pair[1], default=("", 0))
        if best and same >= min(2, len(parts(name))):
            found[name] = best
            left.remove(best)
    return found


def makespans(dag: Any, of_session: dict[str, float], of_function: dict[str, float]) -> tuple[float, float]:
    """Of both orders on one DAG, in µs."""
    from tfsched.ordering.makespan import list_schedule

    return list_schedule(dag, of_session).makespan_us, list_schedule(dag, of_function).makespan_us


def compare(model_name: str, phase: str, batch: int, steps: int, target: str, coordinator: Any) -> dict[str, Any]:
    """One line of the table."""
    from tfsched.bench.models import find_model
    from tfsched.ordering import get
    from tfsched.ordering.metrics import lower_bound_us, upper_bound_us

    model = find_model(model_name)
    session = traced_session(model, phase, batch, steps, target)
    function = traced_function(model, phase, batch, steps, coordinator)
    names = matched(pulls(session), pulls(function))
    back = {theirs: ours for ours, theirs in names.items()}
    dags = [session.dag(WORKER), function.dag(WORKER)]
    plans = [get("tao")(dag) for dag in dags]
    here = makespans(dags[0], plans[0], {name: plans[1].get(names.get(name, ""), 1e9) for name in plans[0]})
    there = makespans(dags[1], {name: plans[0].get(back.get(name, ""), 1e9) for name in plans[1]}, plans[1])
    return {
        "model": model_name,
        "phase": phase,
        "transfers": len(names),
        "unmatched": len(pulls(session)) + len(pulls(function)) - 2 * len(names),
        "on_session_us": here,
        "on_function_us": there,
        "ratio_on_session": here[1] / here[0],
        "ratio_on_function": there[1] / there[0],
        "bounds_us": [(lower_bound_us(dag), upper_bound_us(dag)) for dag in dags],
        "compute_us": [sum(op.time_us for op in dag.ops if op.size_bytes is None) for dag in dags],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="mlp24,resnet50")
    parser.add_argument("--phases", default="forward,train")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5, help="traced steps")
    parser.add_argument("--bandwidth", default="1gbit", help='of each host, or "unlimited"')
    parser.add_argument("--link", default="auto", help="auto, netns or none, as of tfsched bench")
    parser.add_argument("--json", default="")
    arguments = parser.parse_args()

    from tfsched.bench.links import choose_link, parse_bandwidth
    from tfsched.bench.testbed import Hosts, Testbed

    link = choose_link(arguments.link, parse_bandwidth(arguments.bandwidth))
    names = ["ps", "worker", "chief"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    with Testbed(names, link.bandwidth_bps) if link.kind == "netns" else Hosts(names) as hosts:
        ports = free_ports(len(names))
        cluster = {name: [f"{hosts.address(name)}:{port}"] for name, port in zip(names, ports, strict=True)}
        command = [sys.executable, __file__, "--serve"]
        for name in names[:2]:
            task = hosts.exec(
                name,
                [*command, name, json.dumps(cluster)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            if not task.stdout or not task.stdout.readline():
                raise SystemExit(f"The {name} did not start; run it by hand with --serve to see why.")
        chief = hosts.exec("chief", [*command, "chief", json.dumps([cluster, vars(arguments)])], env=environment)
        code = chief.wait(_LIMIT_S)
    sys.exit(code)


def conclude(cluster: dict[str, list[str]], arguments: argparse.Namespace) -> None:
    """The chief: runs everything and ends the process with 0 if the orders are as good as each other."""
    rows = run(cluster, arguments)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    worst = max(row[key] for row in rows for key in ("ratio_on_session", "ratio_on_function"))
    print(f"largest ratio: {worst:.4f} (must not exceed 1.03)", flush=True)
    os._exit(0 if worst <= 1.03 else 1)  # without waiting for what a coordinator's threads wait for


def run(cluster: dict[str, list[str]], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All lines, printed as they come."""
    import tensorflow as tf

    import tfsched

    tf.get_logger().setLevel("ERROR")
    resolver = tfsched.cluster_resolver(cluster, "chief", 0)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(tf.distribute.ParameterServerStrategy(resolver))
    target = "grpc://" + cluster["worker"][0]
    rows = []
    print("                              on the session's DAG               on the function's DAG")
    print("                              session  function            session  function           compute of both")
    print("model      phase    pulls      ms        ms       ratio     ms        ms       ratio    ms")
    for model in arguments.models.split(","):
        for phase in arguments.phases.split(","):
            row = compare(model, phase, arguments.batch, arguments.steps, target, coordinator)
            rows.append(row)
            here, there = row["on_session_us"], row["on_function_us"]
            print(
                f"{model:10} {phase:8} {row['transfers']:5}  "
                f"{here[0] / 1e3:8.1f} {here[1] / 1e3:8.1f} {row['ratio_on_session']:8.4f}    "
                f"{there[0] / 1e3:8.1f} {there[1] / 1e3:8.1f} {row['ratio_on_function']:8.4f}   "
                f"{row['compute_us'][0] / 1e3:.0f}, {row['compute_us'][1] / 1e3:.0f}"
                + (f"  {row['unmatched']} of one API only: last" if row["unmatched"] else ""),
                flush=True,
            )
    return rows


if __name__ == "__main__":
    if sys.argv[1:3] == ["--serve", "chief"]:
        the_cluster, the_arguments = json.loads(sys.argv[3])
        conclude(the_cluster, argparse.Namespace(**the_arguments))
    elif sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], json.loads(sys.argv[3]))
    else:
        main()
