"""``tfsched doctor``: what works here, line by line, and what to do about the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from tfsched.bench.ports import free_port
from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.commands.quiet import import_tensorflow
from tfsched.commands.step_process import ROOT, ask, wait_until_listening

_TIMEOUT_S = 120


class Check(NamedTuple):
    """One line of the report."""

    what: str
    ok: bool
    detail: str
    remedy: str = ""


def define(flags: CommandFlags) -> None:
    flags.boolean("json", False, "print the checks as JSON")
    flags.boolean("quiet", False, "print only what failed")


def run(flags: CommandFlags, arguments: list[str]) -> int:
    if arguments:
        raise UsageError(f"tfsched doctor takes no arguments and got {' '.join(arguments)!r}")
    checks: list[Check] = []
    if not flags.json:
        for check in _checks():
            checks.append(check)
            if not (check.ok and flags.quiet):
                print(f"{'ok    ' if check.ok else 'failed'}  {check.what}: {check.detail}", flush=True)
                if not check.ok:
                    print(f"        remedy: {check.remedy}", flush=True)
    else:
        checks = list(_checks())
        print(json.dumps([check._asdict() for check in checks], indent=1))
    return 0 if all(check.ok for check in checks if check.what != _OPTIONAL) else 1


_OPTIONAL = "network namespaces"  # without them the bench emulates its links


def _checks() -> Iterator[Check]:
    """The checks in the order in which they depend on each other; the rest is left out where one fails."""
    yield from _environment()
    for check in (_tensorflow, _library, _loads, _factory):
        result = check()
        yield result
        if not result.ok:
            yield _namespaces()
            return
    yield from _real_step()
    yield _strategy_step()
    yield _mirrored_step()
    yield _namespaces()


def _environment() -> Iterator[Check]:
    """Whether options in the environment have values that they can have; and then the doctor's steps go without them."""
    from tfsched._options import VARIABLES, Options
    from tfsched.errors import TfschedError

    given = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
    if not given:
        return
    what, shown = "environment", ", ".join(f"{name}={value}" for name, value in given.items())
    try:
        Options()
    except TfschedError as error:
        yield Check(what, False, str(error), "set it to a value that it can have, or unset it: docs/configuration.md")
    else:
        yield Check(what, True, f"{shown} for programs; the steps below go without")
    for name in given:
        del os.environ[name]


def _tensorflow() -> Check:
    what = "TensorFlow"
    try:
        import_tensorflow()
        import tensorflow as tf
    except ImportError as error:
        return Check(what, False, str(error), "pip install 'tensorflow>=2.16,<2.22'")
    major, minor = (int(part) for part in tf.__version__.split(".")[:2])
    fits = major == 2 and 16 <= minor <= 21
    return Check(what, fits, tf.__version__, "pip install 'tensorflow>=2.16,<2.22', then install tfsched again")


def _library() -> Check:
    from tfsched.errors import TfschedError
    from tfsched.ops import library

    path = library.library_path()
    try:
        import tensorflow as tf

        library.check(path, tf.__version__)
    except TfschedError as error:
        return Check("native library", False, str(error), library.REBUILD)
    return Check("native library", True, f"{path}, built for TensorFlow {library.build_info(path).get('tensorflow', '?')}")


def _loads() -> Check:
    from tfsched.errors import TfschedError
    from tfsched.grappler.bridge import install
    from tfsched.ops import library

    try:
        install()
    except TfschedError as error:
        return Check("library loads", False, str(error), library.REBUILD)
    return Check("library loads", True, "ops and pass are registered")


def _factory() -> Check:
    import tensorflow as tf

    from tfsched.server import PROTOCOL, Server

    try:
        Server({"doctor": [f"127.0.0.1:{free_port()}"]}, job_name="doctor", task_index=0)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        return Check("server factory", False, str(error).splitlines()[0], "is the port taken? try again")
    return Check("server factory", True, f"a server of protocol {PROTOCOL} started")


def _real_step() -> Iterator[Check]:
    """A step of a real cluster of two processes: did the pass run, did its transfers go through the scheduler?"""
    import tensorflow as tf

    from tfsched import Options, Server, drain, pass_stats, session_config, stats
    from tfsched.errors import TfschedError

    cluster = {"ps": [f"127.0.0.1:{free_port()}"], "worker": [f"127.0.0.1:{free_port()}"]}
    ps = _parameter_server(cluster)
    try:
        if problem := wait_until_listening(ps, cluster["ps"][0], _TIMEOUT_S):
            raise TfschedError(problem)
        worker = Server(cluster, job_name="worker", task_index=0)
        tf1 = tf.compat.v1
        graph = tf.Graph()
        with graph.as_default():
            with tf.device("/job:ps/task:0"):
                variables = [
                    tf1.get_variable(f"doctor/w{i}", [256, 256], use_resource=True, initializer=tf1.zeros_initializer())
                    for i in range(4)
                ]
            with tf.device("/job:worker/task:0"):
                total = tf.add_n([tf.reduce_sum(variable.read_value() + 1.0) for variable in variables])
            initialize = tf1.global_variables_initializer()
            with tf.device("/job:worker/task:0"):
                # 1 everywhere, but nobody can know without the value.
                ones = [tf.sign(tf.abs(variable.read_value()) + 1.0) for variable in variables]
                optimizer = tf1.train.GradientDescentOptimizer(1.0)
                train = optimizer.apply_gradients(list(zip(ones, variables, strict=True)))
        base = tf1.ConfigProto(operation_timeout_in_ms=_TIMEOUT_S * 1000)
        options = Options(ordering="tio", strict=True)
        with tf1.Session(worker.target, graph=graph, config=session_config(options, base)) as session:
            session.run(initialize)
            before, errors = stats(session, "/job:ps/task:0")["tasks"], pass_stats().errors
            session.run(total)
            moved = stats(session, "/job:ps/task:0")["tasks"] - before
        seen = pass_stats()
        options = Options(barrier=False)
        with tf1.Session(worker.target, graph=graph, config=session_config(options, base)) as session:
            for _ in range(_CROSSING_STEPS):
                session.run(train)
            drain(session, _TIMEOUT_S)
            # Each step takes 1 from every element.
            trained = all((session.run(variable) == -_CROSSING_STEPS).all() for variable in variables)
        crossed = pass_stats()
    except (tf.errors.OpError, TfschedError, OSError) as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        yield Check("a step of two processes", False, text, "see docs/troubleshooting.md, 'doctor fails at the real step'")
        return
    finally:
        ps.kill()
        ps.wait(timeout=_TIMEOUT_S)
    yield Check(
        "pass",
        seen.ordered > 0 and seen.errors == errors,
        f"ran in a real session: {seen.last_report or 'it saw no transfers'}",
        "does TF_CONFIG or the code turn Grappler off (disable_meta_optimizer)? see docs/troubleshooting.md",
    )
    yield Check(
        "transfers",
        moved > 0,
        f"{moved} went through the sender's scheduler",
        f"does the sending task use protocol=tfsched.PROTOCOL? its process must also import tfsched ({sys.executable})",
    )
    yield Check(
        "barrier",
        trained and crossed.crossing == len(variables),
        f"{crossed.crossing} of {len(variables)} variables updated in the background, {'rightly' if trained else 'wrongly'}",
        f"see docs/across-the-barrier.md; what the pass said: {crossed.last_error or crossed.last_report}",
    )


_CROSSING_STEPS = 3


def _parameter_server(cluster: dict[str, list[str]]) -> subprocess.Popen[bytes]:
    """Starts the process of a cluster's only parameter server."""
    serve = (
        "import sys, tfsched, json\n"
        "server = tfsched.Server(json.loads(sys.argv[1]), job_name='ps', task_index=0)\n"
        "sys.stdin.read()\n"  # until the doctor goes, however it goes
        "import os; os._exit(0)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", serve, json.dumps(cluster)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        cwd=ROOT,
    )


def _strategy_step() -> Check:
    """Steps of tf.functions under ParameterServerStrategy, in two processes: the same questions as of a session's."""
    what = "tf.function"
    cluster = {job: [f"127.0.0.1:{free_port()}"] for job in ("ps", "worker", "chief")}
    ps = _parameter_server({job: cluster[job] for job in ("ps", "worker")})
    try:
        problem = wait_until_listening(ps, cluster["ps"][0], _TIMEOUT_S)
        seen: dict[str, Any] = {"error": problem} if problem else ask("tfsched.commands.strategy_step", cluster, _TIMEOUT_S)
    finally:
        ps.kill()
        ps.wait(timeout=_TIMEOUT_S)
    if "error" in seen:
        return Check(what, False, seen["error"], "see docs/troubleshooting.md, 'doctor fails at the real step'")
    moved, crossing, count = (seen[key] for key in ("moved", "crossing", "variables"))
    return Check(
        what,
        seen["ordered"] and moved > 0 and not seen["errors"] and crossing == count and seen["trained"],
        f"under ParameterServerStrategy: {seen['kept'] or 'the pass saw no transfers'}; {moved} went through the "
        f"sender's scheduler, {crossing} of {count} variables updated in the background, "
        f"{'rightly' if seen['trained'] else 'wrongly'}",
        f"see docs/tensorflow2.md; what the pass said: {seen['report']}",
    )


def _mirrored_step() -> Check:
    """Steps under MultiWorkerMirroredStrategy, in two processes."""
    what = "all-reduce"
    cluster = {"worker": [f"127.0.0.1:{free_port()}" for _ in range(2)]}
    seen = ask("tfsched.commands.mirrored_step", cluster, _TIMEOUT_S)
    if "error" in seen:
        return Check(what, False, seen["error"], "see docs/troubleshooting.md, 'doctor fails at the real step'")
    exchanged, crossing = seen["exchanged"], seen["crossing"]
    return Check(
        what,
        exchanged == seen["variables"] and crossing == seen["steps"] and seen["trained"] and not seen["errors"],
        f"under MultiWorkerMirroredStrategy: {exchanged:g} of {seen['variables']} gradients exchanged by themselves, "
        f"{crossing} of {seen['steps']} steps updated in the background, {'rightly' if seen['trained'] else 'wrongly'}",
        f"see docs/allreduce.md; what the pass said: {seen['report']}",
    )


def _namespaces() -> Check:
    from tfsched.bench.testbed import netns_available

    available, reason = netns_available()
    return Check(_OPTIONAL, available, reason, "run the bench as root, or with --link emulated")
