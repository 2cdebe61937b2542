"""Runs programs of one client (session_programs.py) in the client's task, and says what each action saw."""

import contextlib
import os
import sys
import time
import traceback

import tensorflow as tf
from scenarios import common

from tests.fuzz import graphs

v1 = tf.compat.v1
_RECONNECT_S = 20


class _Client:
    """What lives on between the parts of a program: the graph, open sessions, configs."""

    def __init__(self, task, program, prefix, directory, stock):
        tf.config.experimental.enable_op_determinism()
        tf.random.set_seed(1)
        os.makedirs(directory, exist_ok=True)
        self.program, self.directory, self.stock = program, directory, stock
        self.model = {**program["model"], "ps": program["ps"]}
        self.addresses = task.spec["cluster"]
        self.task, self.prefix = task, prefix
        self.chain = graphs.Chain(task, prefix, **self.model)
        self.sessions, self.crossing, self.config = {}, set(), None
        self.steps = 0

    def target(self, name):
        job = name.rstrip("0123456789")
        return "grpc://" + self.addresses[job][int(name[len(job) :])]

    def configured(self, options):
        """A config of a client of its own."""
        return common.session_config(self.task, None if self.stock else graphs.with_plan(self.chain.graph, options))

    def feed(self, chain):
        self.steps += 1
        return chain.feed(self.steps)

    # --- actions -----------------------------------------------------------------------------------------------------

    def open(self, number, kind, options, master):
        if kind == "plain":
            config = common.session_config(self.task)
        elif kind == "same" and self.config is not None:
            config = self.config
        else:
            config = self.config = self.configured(options or {"barrier": False})
        self.sessions[number] = v1.Session(self.target(master), graph=self.chain.graph, config=config)

    def close(self, number):
        self.sessions.pop(number).close()

    def init(self, number):
        self.sessions[number].run(self.chain.init)

    def train(self, number, count):
        chain = self.chain
        return [float(self.sessions[number].run([chain.loss, chain.train], self.feed(chain))[0]).hex() for _ in range(count)]

    def train_some(self, number):
        self.sessions[number].run(self.chain.train_some)

    def evaluate(self, number):
        return float(self.sessions[number].run(self.chain.loss, self.chain.feed(0))).hex()

    def values(self, number):
        return self.chain.values(self.sessions[number])

    def fetch(self, number, which):
        reads = self.chain.reads
        return graphs.digest(self.sessions[number].run(reads[which % len(reads)]))

    def assign(self, number, which, given):
        assigns = self.chain.assigns
        self.sessions[number].run(assigns[which % len(assigns)], {self.chain.given: given})

    def save(self, number, name):
        with self.chain.graph.as_default():
            path = self.chain.saver.save(self.sessions[number], self._path(f"saved{name}"), write_meta_graph=False)
        return self.chain.saved(path)

    def restore(self, number, name):
        with self.chain.graph.as_default():
            self.chain.saver.restore(self.sessions[number], self._path(f"saved{name}"))

    def drain(self, number):
        if not self.stock:
            import tfsched

            tfsched.drain(self.sessions[number])

    def configure(self, number, change):
        if not self.stock:
            import tfsched

            tfsched.configure(None if number is None else self.sessions[number], **change)

    def monitored(self, options, steps, every, drains):
        """MonitoredTrainingSession with its savers; it writes a checkpoint before any step."""
        chain = graphs.Chain(self.task, self.prefix, **self.model)
        directory = self._path(f"monitored{self.steps}")
        config = common.session_config(self.task) if options is None else self.configured(options)
        losses, counted = [], []
        with chain.graph.as_default():
            scaffold = v1.train.Scaffold(saver=v1.train.Saver(chain.all, max_to_keep=None))
            saves = v1.train.CheckpointSaverHook(directory, save_steps=every, scaffold=scaffold)
            hooks = [saves, *self._drain_hooks(drains)]
            session = v1.train.MonitoredTrainingSession(
                master=self.target(self.program["client"]),
                scaffold=scaffold,
                hooks=hooks,
                log_step_count_steps=None,
                save_summaries_steps=None,
                save_summaries_secs=None,
                config=config,
            )
            with session:
                for _ in range(steps):
                    losses.append(float(session.run([chain.loss, chain.train], self.feed(chain))[0]).hex())
                    counted.append(int(session.run(chain.step)))
        paths = tf.train.get_checkpoint_state(directory).all_model_checkpoint_paths
        saved = {path.rpartition("-")[2]: chain.saved(path) for path in paths}
        return {"losses": losses, "counted": counted, **saved}

    def stock_values(self):
        """What a session of a stock task sees, which waits for nothing by itself."""
        for number in self.sessions:
            self.drain(number)
        with v1.Session(self.target(self.program["stock"][0]), graph=self.chain.graph) as session:
            return self.chain.values(session)

    # -----------------------------------------------------------------------------------------------------------------

    def _drain_hooks(self, drains):
        if not drains or self.stock:
            return []
        import tfsched

        return [tfsched.DrainHook()]

    def _path(self, name):
        return os.path.join(self.directory, name)


def run(task, program, prefix, directory, stock, begin=0):
    """Runs the actions from ``begin`` to the end or to the loss of a task, which is the caller's to do.

    Returns:
      The number of the action that it stopped at, and for each that it ran what it saw, or its error.
    """
    client = task.state.get("fuzzed")
    if client is None or client.prefix != prefix:
        client = task.state["fuzzed"] = _Client(task, program, prefix, directory, stock)
    _forget(client)  # sessions of tasks that were lost
    if begin:
        _connect(client)
    client.steps = 1000 * begin  # the same for all, though the client may be another one
    seen, actions = [], program["actions"]
    for number in range(begin, len(actions)):
        name, *arguments = actions[number]
        if name == "lose":  # with everything open, and updates under way
            return {"at": number, "seen": seen}
        task.state["doing"] = f"action {number}: {actions[number]}"
        try:
            seen.append(getattr(client, name)(*arguments))
        except Exception as error:  # what stock TensorFlow says of the same action decides
            traceback.print_exc()
            seen.append({"error": type(error).__name__, "message": str(error)[:2000]})
    _forget(client)
    return {"at": len(actions), "seen": seen}


def _connect(client):
    """Waits until every task reaches every other one again, as a program does that goes on behind a lost task.

    What asked for a tensor while the task was down, a background update say, has left a connection that is not tried again
    for a second or more; an op that needs it fails meanwhile.
    """
    tasks = [f"/job:{job}/task:{index}" for job, addresses in client.addresses.items() for index in range(len(addresses))]
    with tf.Graph().as_default() as graph:
        given, moved = v1.placeholder(tf.float32, []), []
        for sender in tasks:
            with tf.device(sender):
                value = tf.exp(given)
            for receiver in tasks:
                with tf.device(receiver):
                    moved.append(value + 1.0)
    deadline_s = time.monotonic() + _RECONNECT_S
    for addresses in client.addresses.values():
        for address in addresses:
            while True:
                try:
                    with v1.Session(f"grpc://{address}", graph=graph) as session:
                        session.run(moved, {given: 1.0})
                    break
                except (tf.errors.UnavailableError, tf.errors.AbortedError):
                    if time.monotonic() > deadline_s:
                        raise
                    time.sleep(0.2)


def _forget(client):
    for session in client.sessions.values():
        # One whose master was lost cannot be closed, which is as it should be.
        with contextlib.suppress(tf.errors.OpError):
            session.close()
    client.sessions.clear()
    client.config = None


def clear(task, prefix):
    """Throws a program's variables away, so that the next programs have the memory."""
    client = task.state.pop("fuzzed", None)
    if client is not None and client.prefix == prefix:
        with v1.Session(task.target, graph=client.chain.graph, config=common.session_config(task)) as session:
            session.run(client.chain.destroy)


def stacks(task):
    """Where every thread of Python is."""
    lines = [task.state.get("doing", "")]
    for number, frame in sys._current_frames().items():
        lines += [f"thread {number}:", *(line.rstrip() for line in traceback.format_stack(frame))]
    return "\n".join(lines)
