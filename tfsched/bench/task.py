"""One task of the bench's cluster: hosts its servers, and some tasks run steps on request.

These are worker 0, coordinators and workers that all-reduce. Talks JSON lines: one answer on stdout for every request on
stdin. The first two requests are the same for all tasks: `hello` (`environment`, to be set before TensorFlow is imported,
and `ports`, which to check, or how many to choose), and then `start`: `clusters` (protocol -> cluster), `job` ("chief"
coordinates), `task`, `replica` (null, or the `api` and `loop` with which it all-reduces), `intra_op_threads`,
`inter_op_threads` and `timeout_s`. Ends with whoever started it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import IO, Any

from tfsched._options import VARIABLES
from tfsched.bench.errors import BenchError
from tfsched.bench.guard import end_with_parent
from tfsched.bench.ports import check_free, free_ports
from tfsched.bench.settings import TFSCHED
from tfsched.bench.threads import available_cores
from tfsched.version import __version__


def _hello(environment: dict[str, str], ports: list[int] | int) -> dict[str, Any]:
    """Sets the environment, imports TensorFlow, and tells what there is on this machine."""
    for name in list(os.environ):
        # A proxy would take the servers' connections elsewhere. Options are each setting's.
        if name.lower().endswith("_proxy") or name in ("TF_CONFIG", "TFSCHED_EMULATED_BPS", *VARIABLES):
            del os.environ[name]
    os.environ.update(environment)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    if isinstance(ports, int):
        ports = free_ports(ports, "")
    else:
        for port in ports:
            check_free(port)
    try:
        import tensorflow as tf
    except ImportError as error:
        raise BenchError(f"{sys.executable} cannot import TensorFlow ({error}): install it there") from error
    return {"tfsched": __version__, "tensorflow": tf.__version__, "ports": ports, "cores": available_cores()}


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


def _serve(requests: IO[str], answers: IO[str]) -> Any:
    """Answers requests until nobody sends any more; returns what has answered them."""
    name, handler = "a task", None

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        nonlocal name, handler
        do = request.pop("do")
        if do == "hello":
            return _hello(**request)
        if do == "start":
            name = "the coordinator" if request["job"] == "chief" else f"{request['job']} {request['task']}"
            handler = _handler(request)
            return {}
        if handler is None:
            raise BenchError("only worker 0, coordinators and workers that all-reduce answer requests")
        content: dict[str, Any] = getattr(handler, "do_" + do)(**request)
        return content

    for line in requests:
        try:
            content = answer(json.loads(line))
        except Exception as error:  # the bench has to hear of any failure; the traceback goes to the task's log
            traceback.print_exc()
            content = {"error": _sentence(name, error)}
        answers.write(json.dumps(content) + "\n")
        answers.flush()
    return handler


def _sentence(name: str, error: Exception) -> str:
    if isinstance(error, BenchError):
        return str(error)
    # TensorFlow's messages begin with headings and the place in the program, and end with the graph's history.
    lines = [line.strip() for line in str(error).splitlines()]
    reason = next((line for line in lines if line and not line.endswith(":") and not line.startswith('File "')), repr(error))
    return f"{name} could not go on ({type(error).__name__}): {reason}"


def main() -> None:
    """Runs one task until nobody sends requests any more."""
    end_with_parent()
    # TensorFlow and its libraries print as they like: keep stdout for answers only.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    # Sessions that were left open are kept: closing them would call servers that end at this moment.
    handler = _serve(sys.stdin, answers)  # noqa: F841
    # A server cannot be stopped from Python, and an orderly exit may wait for its peers for ever.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
