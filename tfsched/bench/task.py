"""One task of the bench's cluster: hosts its servers, and some tasks run steps on request.

These are worker 0, coordinators and workers that all-reduce. Started as `python -m tfsched.bench.task SPEC`, SPEC being a
JSON object with `clusters` (protocol -> cluster), `job` ("chief" coordinates), `task`, `replica` (null, or the `api` and
`loop` with which it all-reduces), `intra_op_threads`, `inter_op_threads` and `timeout_s`. Talks JSON lines: one answer on
stdout for every request on stdin. Ends with its parent.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from typing import IO, Any

from tfsched.bench.errors import BenchError
from tfsched.bench.settings import TFSCHED


def _start_servers(spec: dict[str, Any]) -> dict[str, Any]:
    import tensorflow as tf

    if TFSCHED in spec["clusters"]:
        # Registers the protocol, and tells in one sentence if the library cannot be loaded.
        import tfsched

        tfsched.load()
    # The first server of a process decides: its pools are the process's, whatever later servers and sessions ask for.
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=spec["intra_op_threads"],
        inter_op_parallelism_threads=spec["inter_op_threads"],
    )
    return {
        protocol: tf.distribute.Server(
            cluster,
            job_name=spec["job"],
            task_index=spec["task"],
            protocol=protocol,
            config=config,
        )
        for protocol, cluster in spec["clusters"].items()
    }


def _handler(spec: dict[str, Any]) -> Any:
    """Starts what the task hosts, and returns what answers its requests, None where it gets none."""
    if spec["job"] == "chief":
        from tfsched.bench.coordinator import Coordinator

        ((protocol, cluster),) = spec["clusters"].items()
        return Coordinator(cluster, protocol, spec["inter_op_threads"], spec["timeout_s"])
    if spec["replica"] is not None:
        from tfsched.bench.replica import Replica

        ((protocol, cluster),) = spec["clusters"].items()
        threads = {name: spec[name] for name in ("intra_op_threads", "inter_op_threads")}
        return Replica(**spec["replica"], workers=cluster["worker"], protocol=protocol, index=spec["task"], **threads)
    servers = _start_servers(spec)
    if (spec["job"], spec["task"]) != ("worker", 0):
        return None
    from tfsched.bench.chief import Chief

    return Chief(
        {protocol: server.target for protocol, server in servers.items()},
        ps=len(spec["clusters"][next(iter(servers))]["ps"]),
        workers=len(spec["clusters"][next(iter(servers))]["worker"]),
        timeout_s=spec["timeout_s"],
    )


def _serve(spec: dict[str, Any], requests: IO[str], answers: IO[str]) -> None:
    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    name = "the coordinator" if spec["job"] == "chief" else f"{spec['job']} {spec['task']}"
    try:
        handler = _handler(spec)
    except Exception as error:  # the parent has to hear of any failure
        traceback.print_exc()
        answer({"error": _sentence(name, error)})
        return
    import tensorflow as tf

    answer({"ready": True, "tensorflow": tf.__version__})
    for line in requests:
        try:
            if handler is None:
                raise BenchError("only worker 0, coordinators and workers that all-reduce answer requests")
            request = json.loads(line)
            answer(getattr(handler, "do_" + request.pop("do"))(**request))
        except Exception as error:  # as above; the traceback goes to the task's log
            traceback.print_exc()
            answer({"error": _sentence(name, error)})


def _sentence(name: str, error: Exception) -> str:
    if isinstance(error, BenchError):
        return str(error)
    # TensorFlow's messages begin with a heading and end with the graph's history.
    lines = [line.strip() for line in str(error).splitlines() if not line.rstrip().endswith(":")]
    reason = next(filter(None, lines), repr(error))
    return f"{name} could not go on ({type(error).__name__}): {reason}"


def _end_with_parent() -> None:
    """Ends the task when its parent is gone, even while a request hangs."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Runs one task until its parent closes stdin."""
    # TensorFlow and its libraries print as they like: keep stdout for answers only.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _end_with_parent()
    _serve(json.loads(sys.argv[1]), sys.stdin, answers)
    # A server cannot be stopped from Python, and an orderly exit may wait for its peers for ever.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
