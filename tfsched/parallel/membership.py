"""Joining the other workers and leaving them; who this process is among them."""

from __future__ import annotations

import atexit
import contextlib
import copy
import dataclasses
import itertools
import os
import sys
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import rewriter_config_pb2, tensorflow_server_pb2
from tensorflow.python.eager import context as context_lib
from tensorflow.python.ops import collective_ops

from tfsched._log import log
from tfsched._options import Options
from tfsched.eager import api, calls
from tfsched.errors import TfschedError
from tfsched.ops import library
from tfsched.parallel.launch import Place, from_environment
from tfsched.server import PROTOCOL

# How long init waits for the other workers, and how long a worker that has finished waits for them to finish, too.
JOIN_TIMEOUT_S, LEAVE_TIMEOUT_S = 600, 30
# Keys of the group of all workers, and of the group in which they leave; far from those that a strategy counts from 1.
GROUP_KEY, LEAVING_KEY = 1_000_001, 1_000_002


@dataclasses.dataclass
class Member:
    """This process among the workers.

    Attributes:
      place: where it is; None where it is alone.
      device: on which its collectives run.
      counter: a variable that counts them, so that each has a number that is the same on all workers.
      token: a variable that no op reads, so that they begin in the program's order.
    """

    place: Place | None = None
    device: str = ""
    counter: Any = None
    token: Any = None

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self.place.addresses) if self.place else 1

    @property
    def rank(self) -> int:
        """Which of them this is."""
        return self.place.rank if self.place else 0

    def next_key(self, after: Any) -> Any:
        """A number for the collective that comes next: the same on all workers, and no other one's.

        It is counted where the collective runs, not where a function is traced: workers may trace at different times, a
        function may be called by others, and it may turn in a loop.

        Args:
          after: a tensor of the collective's. Without it nothing is counted: a step whose input has come to its end fails on
            all workers, and some would have counted before it does.
        """
        with tf.device(self.device), tf.control_dependencies([after]):
            return tf.identity(self.counter.assign_add(1))


_now: list[Member] = []
# The cluster that this process has joined. TensorFlow has no way back.
_joined: list[Member] = []
_leaves = itertools.count(1)


def init(options: Options | None = None, *, timeout_s: float = JOIN_TIMEOUT_S) -> None:
    """Joins the other workers, each of which runs the same program, and switches tfsched on if it is off.

    The environment says where the others are: by ``TF_CONFIG``; or by ``TFSCHED_ADDRESSES``, a list of host:port in the
    order of the ranks, and ``TFSCHED_RANK`` or what mpirun or srun set. Without either this is the only worker, and all
    functions of tfsched.parallel leave values as they are. It is called before TensorFlow computes anything; a second call
    does nothing.

    Args:
      options: how transfers are scheduled; None means those of ``tfsched.enable``, or ``Options()``.
      timeout_s: how long to wait for the other workers. TensorFlow cannot be stopped waiting: the process ends then, with
        exit code 1 and a sentence on standard error; TensorFlow's log names who is missing.

    Raises:
      TfschedError: the environment does not say where the workers are, TensorFlow has computed something before, or this
        process cannot listen at its address.
    """
    if options is not None and not isinstance(options, Options):
        raise TfschedError(f"init got {options!r} as options; give a tfsched.Options.")
    if timeout_s <= 0:
        raise TfschedError(f"init got {timeout_s!r} as timeout_s; give seconds, more than 0.")
    if options is not None or calls.in_force() is None:
        api.enable(options)
    if _now:
        return
    place = from_environment(os.environ)
    if place is None or len(place.addresses) == 1:
        _now.append(Member())
        return
    if not _joined:
        _joined.append(_join(place, timeout_s))
        atexit.register(_leave_at_exit)
    elif _joined[0].place != place:
        raise TfschedError(f"this process has joined {_joined[0].place!r}, not {place!r}; join others in a new process.")
    _now.append(_joined[0])


def shutdown() -> None:
    """Waits until all workers have finished, at most 30 s; then this one is no member any more, until the next init.

    The end of a process does so by itself, unless by an error. What a worker has sent last may still be on its way to others
    when its own step has returned, so none should go before.
    """
    if not _now:
        return
    member = _now.pop()
    if member.place is None:
        return
    try:
        with tf.init_scope(), tf.device(member.device):
            collective_ops.all_reduce_v2(
                tf.zeros([1]), member.size, LEAVING_KEY, next(_leaves), timeout=float(LEAVE_TIMEOUT_S)
            )
    except tf.errors.OpError as error:
        log.warning("a worker leaves without the others: %s", error.message)


def is_initialized() -> bool:
    """Whether this process is between init and shutdown."""
    return bool(_now)


def size() -> int:
    """How many workers there are.

    Raises:
      TfschedError: without init.
    """
    return member().size


def rank() -> int:
    """Which of the workers this is, from 0 on; a chief is 0.

    Raises:
      TfschedError: without init.
    """
    return member().rank


def local_size() -> int:
    """How many workers have addresses of this one's host.

    Raises:
      TfschedError: without init.
    """
    place = member().place
    return len(place.neighbours) if place else 1


def local_rank() -> int:
    """Which of the workers of its host this is, from 0 on.

    Raises:
      TfschedError: without init.
    """
    place = member().place
    return place.neighbours.index(place.rank) if place else 0


def member() -> Member:
    """This process among the workers.

    Raises:
      TfschedError: without init.
    """
    if not _now:
        raise TfschedError("tfsched.parallel is not initialized; call tfsched.parallel.init() first.")
    return _now[0]


def _join(place: Place, timeout_s: float) -> Member:
    """What MultiWorkerMirroredStrategy does to have a server and collectives, with tfsched's protocol."""
    context = context_lib.context()
    if context._context_handle is not None:
        raise TfschedError(
            "init came after TensorFlow had begun to compute, which is too late to join other workers; call "
            "tfsched.parallel.init() before anything else of TensorFlow."
        )
    leader = f"/job:{'chief' if 'chief' in place.cluster else 'worker'}/replica:0/task:0"
    task = f"/job:{place.job}/task:{place.index}"
    context.configure_collective_ops(collective_leader=leader, device_filters=(task,))
    if context.coordination_service is None:
        # Its heartbeats tell who has vanished without closing its connections.
        jobs = context_lib.coordination_config_pb2.CoordinatedJob
        context.configure_coordination_service(
            service_type="standalone",
            service_leader=leader,
            cluster_register_timeout_in_ms=round(timeout_s * 1000),
            coordinated_jobs=[jobs(name=job, num_tasks=len(tasks)) for job, tasks in place.cluster.items()],
        )
    server = tensorflow_server_pb2.ServerDef(
        cluster=tf.train.ClusterSpec(place.cluster).as_cluster_def(),
        default_session_config=_server_config(context.config, leader, task),
        job_name=place.job,
        task_index=place.index,
        protocol=PROTOCOL,
    )
    context.enable_collective_ops(server)
    try:
        with _limited(place, timeout_s):
            context.ensure_initialized()
    except tf.errors.UnknownError as error:
        if "start gRPC server" not in error.message:
            raise
        raise TfschedError(
            f"this worker cannot listen at {place.addresses[place.rank]} ({error.message}); end what does, or give it "
            "another address on all workers."
        ) from None
    device = f"/job:{place.job}/replica:0/task:{place.index}/device:CPU:0"
    with tf.init_scope(), tf.device(device):
        return Member(place, device, tf.Variable(0, trainable=False), tf.Variable(0.0, trainable=False))


@contextlib.contextmanager
def _limited(place: Place, timeout_s: float) -> Iterator[None]:
    """Ends the process after ``timeout_s``: TensorFlow holds Python's lock while it waits, and does not give up."""
    own = place.addresses[place.rank]
    others = ", ".join(address for rank, address in enumerate(place.addresses) if rank != place.rank)
    sentence = (
        f"tfsched: worker {place.rank} ({own}) has waited {timeout_s:g} s in tfsched.parallel.init for the workers at "
        f"{others} and ends; TensorFlow's log above names those that are missing: start all workers within that time, or "
        "give init a larger timeout_s."
    )
    limit = library.c_api().tfsched_limit_process
    limit(max(1, round(timeout_s * 1000)), sentence.encode())
    try:
        yield
    finally:
        limit(0, b"")


def _server_config(config: Any, leader: str, task: str) -> Any:
    made = copy.deepcopy(config)
    rewrite = made.graph_options.rewrite_options
    rewrite.scoped_allocator_optimization = rewriter_config_pb2.RewriterConfig.ON
    rewrite.scoped_allocator_opts.enable_op[:] = ["CollectiveReduce"]
    made.experimental.collective_group_leader = leader
    made.device_filters[:] = [task]
    return made


def _leave_at_exit() -> None:
    # Others may be waiting for what this worker will not send any more: they have to see it go.
    if getattr(sys, "last_value", None) is None:
        shutdown()
