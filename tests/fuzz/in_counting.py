"""Runs one worker's part of a program that counts (counted_programs.py), and logs when each action began and ended."""

import contextlib
import os
import time

import tensorflow as tf
from scenarios import common

from tests.fuzz import graphs, model

v1 = tf.compat.v1
_SYNC_S = 60


class _Counted:
    """The variables, and a step that adds 1 to the count of each."""

    def __init__(self, task, prefix, sizes, optimizer, replicas=0):
        self.prefix, self.hook = prefix, None
        # A container of its own: what SyncReplicasOptimizer shares has the same names in all programs.
        with tf.Graph().as_default() as self.graph, self.graph.container(prefix), v1.device(common.on_ps(task)):
            with v1.variable_scope(prefix):
                self.step = v1.train.get_or_create_global_step()
                start = v1.zeros_initializer()
                variables = [
                    v1.get_variable(f"v{n}", [size], initializer=start, use_resource=True) for n, size in enumerate(sizes)
                ]
                values = [variable.read_value() for variable in variables]
                # 1 everywhere, but nobody can know without the values.
                gradients = [tf.sign(tf.abs(value) + 1.0) for value in values]
                rule = v1.train.GradientDescentOptimizer(1.0) if optimizer == "sgd" else v1.train.MomentumOptimizer(1.0, 1.0)
                if replicas:
                    rule = v1.train.SyncReplicasOptimizer(rule, replicas, replicas)
                self.train = rule.apply_gradients(zip(gradients, variables, strict=True), global_step=self.step)
                if replicas:
                    self.hook = rule.make_session_run_hook(task.spec["index"] == 0)
                    self.release = rule._sync_token_queue.enqueue_many(tf.zeros([4 * replicas], tf.int64))
            # What a step has read, seen on the worker.
            self.seen = [tf.stack([tf.reduce_min(value), tf.reduce_max(value)]) for value in values]
            self.reads = {variable.op.name: variable.read_value() for variable in variables}
            # Others: the optimizer's counters and queues.
            slots = [variable for variable in v1.global_variables() if variable.op.name.endswith("/Momentum")]
            self.slots = {variable.op.name: variable.read_value() for variable in slots}
            self.saver = v1.train.Saver([*variables, *slots], max_to_keep=None)
            self.init = v1.global_variables_initializer()
            self.destroy = [tf.raw_ops.DestroyResourceOp(resource=one.handle) for one in v1.global_variables()]


class _Worker:
    """What a worker's actions work on."""

    def __init__(self, task, program, prefix, directory):
        self.task, self.program, self.directory = task, program, directory
        self.sync = program["kind"] == "synchronous"
        replicas = program["workers"] if self.sync else 0
        self.counted = _Counted(task, prefix, replicas=replicas, **program["model"])
        self.side = _Counted(task, prefix, **program["model"])  # for sessions that are not the monitored one
        self.momentum = program["model"]["optimizer"] == "momentum"
        self.sessions, self.config, self.log = {}, None, []

    def open(self, kind, options):
        if kind == "new" or self.config is None:
            planned = graphs.with_plan(self.counted.graph, options)
            self.config = common.session_config(self.task, planned, filters=["/job:ps", common.here(self.task)])
        if "own" in self.sessions:
            self.sessions.pop("own").close()
        if not self.sync:
            self.sessions["own"] = v1.Session(self.task.target, graph=self.counted.graph, config=self.config)
            return
        with self.counted.graph.as_default():
            self.sessions["own"] = v1.train.MonitoredTrainingSession(
                master=self.task.target,
                is_chief=self.task.spec["index"] == 0,
                hooks=[self.counted.hook],
                config=self.config,
                log_step_count_steps=None,
                max_wait_secs=_SYNC_S,
                stop_grace_period_secs=1,  # the chief's own thread waits for gradients that will never come
            )

    def _at(self, which):
        """The session of that name and its graph: the training one, one without tfsched, one of another client."""
        if which == "own":
            return self.sessions["own"], self.counted
        if which not in self.sessions:
            options = {"barrier": False} if which == "other" else None
            config = common.session_config(self.task, options, filters=["/job:ps", common.here(self.task)])
            self.sessions[which] = v1.Session(self.task.target, graph=self.side.graph, config=config)
        return self.sessions[which], self.side

    def _noted(self, kind, run):
        """Runs and logs: when it began and ended, what it saw as [smallest, largest] of each array."""
        begin_s = time.monotonic()
        seen = run()
        self.log.append({"kind": kind, "begin_s": begin_s, "end_s": time.monotonic(), "seen": seen})

    def _ranges(self, values):
        """Counts by name, of arrays whose elements should be equal."""
        return {
            name.replace(self.counted.prefix + "/", ""): [
                model.count_of(float(one), self.momentum and not name.endswith("/Momentum"))
                for one in (value.min(), value.max())
            ]
            for name, value in values.items()
        }

    def train(self, count):
        fetches = [self.counted.seen, self.counted.train]
        for _ in range(count):
            self._noted("step", lambda: self._seen(self.sessions["own"].run(fetches)[0]))

    def _seen(self, pairs):
        return {
            f"v{number}": [model.count_of(float(one), self.momentum) for one in (pair[0], pair[1])]
            for number, pair in enumerate(pairs)
        }

    def evaluate(self, which):
        session, counted = self._at(which)
        self._noted("read", lambda: self._seen(session.run(counted.seen)))

    def read(self, which):
        session, counted = self._at(which)
        if self.sync:  # what the step counter says is true of whatever is read behind it, by whomever
            self._noted("counter", lambda: {"global_step": [int(session.run(counted.step))] * 2})
        self._noted("read", lambda: self._ranges(session.run(counted.reads)))

    def fetch(self, which, number):
        session, counted = self._at(which)
        names = list(counted.reads)
        name = names[number % len(names)]
        self._noted("read", lambda: self._ranges({name: session.run(counted.reads[name])}))

    def save(self, which):
        session, counted = self._at(which)
        if which == "own" and self.sync:
            session = session._tf_sess()
        path = os.path.join(self.directory, f"saved{self.task.spec['index']}-{len(self.log)}")
        os.makedirs(self.directory, exist_ok=True)

        def save():
            with counted.graph.as_default():
                counted.saver.save(session, path, write_meta_graph=False, write_state=False)
            reader = v1.train.NewCheckpointReader(path)
            return self._ranges({name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()})

        self._noted("read", save)

    def drain(self):
        import tfsched

        tfsched.drain(self.sessions["own"])

    def configure(self, change):
        import tfsched

        tfsched.configure(**change)

    def pause(self, seconds):
        time.sleep(seconds)


def prepare(task, program, prefix):
    """Gives the variables their first values; only the chief does it."""
    counted = _Counted(task, prefix, **program["model"])
    with v1.Session(task.target, graph=counted.graph, config=common.session_config(task)) as session:
        session.run(counted.init)


def run(task, program, prefix, directory):
    """This worker's actions; their log. Sessions stay open, for others may need the chief's.

    Synchronous steps need those of others: who is through goes on with steps until everybody is (see :func:`stop`).
    """
    worker = task.state["counting"] = _Worker(task, program, prefix, directory)
    for number, (name, *arguments) in enumerate(program["workers_do"][task.spec["index"]]):
        task.state["doing"] = f"action {number}: {name} {arguments}"
        getattr(worker, name)(*arguments)
    task.state["through"] = True
    while worker.sync and not task.state.pop("stop", False):
        worker.train(1)
    task.state["through"] = False
    return worker.log


def opened(task):
    """Whether the worker has a session."""
    return "counting" in task.state and "own" in task.state["counting"].sessions


def through(task):
    """Whether the worker has done all that its program asks for."""
    return task.state.get("through", False)


def stop(task):
    """Ends the steps behind the program's end, also one that waits for its turn."""
    task.state["stop"] = True
    worker = task.state["counting"]
    worker.sessions["own"].run(worker.counted.release)


def final(task):
    """All counts when every worker has returned, read by a session without tfsched; then all sessions are closed."""
    worker = task.state["counting"]
    worker.log.clear()
    worker.read("plain")
    return worker.log


def close(task):
    """Closes what run() left open."""
    worker = task.state["counting"]
    for session in worker.sessions.values():
        with contextlib.suppress(tf.errors.OpError):
            session.close()
    worker.sessions.clear()


def slots(task):
    """The step counter, and the counts of variables and slots, when all is over."""
    worker = task.state["counting"]
    session, side = worker._at("plain")
    return int(session.run(side.step)), worker._ranges(session.run({**side.reads, **side.slots}))


def clear(task):
    """Throws the variables away."""
    side = task.state.pop("counting").side
    with v1.Session(task.target, graph=side.graph, config=common.session_config(task)) as session:
        session.run(side.destroy)
