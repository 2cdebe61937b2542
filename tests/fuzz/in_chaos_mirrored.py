"""A worker that all-reduces until something befalls the workers (chaos_mirrored.py); runs inside of its task."""

import contextlib
import hashlib
import json
import os
import threading
import time

import tensorflow as tf
from scenarios import mirrored
from tensorflow.python.eager import cancellation, context

from tests.cluster.cluster import STOCK
from tests.fuzz.chaos_programs import BROKEN_INPUT

_WIDTH, _BATCH = 40, 4
_SAVED_EACH = 2
_HEALTH_S = 1  # in place of the strategy's half minute between checks and 10 s for an answer
# After which part of a step's time it is cancelled.
_CANCEL_AT = {"exchange": 0.5, "start": 0.0}
_DRAIN_S = 30


class _Training:
    """The loop, and what is to happen to one of its steps."""

    def __init__(self, task, options, directory):
        self.index, self.directory = task.spec["index"], directory
        self.strategy = mirrored.join(task, options)
        with self.strategy.scope():
            self.model, self.rule = mirrored.Model(), mirrored.Descent(0.9)
            self.rule.build(self.model.variables_)
        self.variables = [*self.model.variables_, *self.rule.variables]
        self.function = tf.function(self._step)
        self.losses, self.error = {}, None
        self.next_step, self.last_step = None, None  # what befalls the next step; where the loop ends
        self.thread = None
        self.step_s = 0.0  # the last one's time

    def _step(self, number, broken):
        def replica(number, broken):
            with tf.control_dependencies([tf.debugging.assert_equal(broken, False, message=BROKEN_INPUT)]):
                batch = tf.random.stateless_normal([_BATCH, _WIDTH], [number, 7 + self.index])
            with tf.GradientTape() as tape:
                loss = self.model.loss(batch)
            gradients = tape.gradient(loss, self.model.variables_)
            self.rule.apply_gradients(list(zip(gradients, self.model.variables_, strict=True)))
            return loss

        return self.strategy.run(replica, args=(number, broken))

    def step(self, number):
        """One step, which ``next_step`` may break or cancel."""
        what, self.next_step = self.next_step, None
        arguments = (tf.constant(number), tf.constant(what == "broken"))
        if what not in _CANCEL_AT:
            begin_s = time.monotonic()
            result = self.function(*arguments)
            self.step_s = time.monotonic() - begin_s
            return result
        manager = cancellation.CancellationManager()
        cancelable = manager.get_cancelable_function(self.function.get_concrete_function(*arguments))
        timer = threading.Timer(_CANCEL_AT[what] * self.step_s, manager.start_cancel)
        timer.start()
        try:
            return cancelable(*arguments)
        finally:
            timer.join()

    def loop(self, first, pause_s):
        number, over = first, threading.Event()
        try:
            while self.last_step is None or number < self.last_step:
                self.losses[number] = mirrored._text(self.step(number))
                number += 1
                if self.directory and number % _SAVED_EACH == 0:
                    self.save(number)
                over.wait(pause_s)
        except Exception as error:
            self.error = {"kind": type(error).__name__, "message": str(error)}

    def _checkpoint(self):
        return tf.train.Checkpoint(all=self.variables)

    def save(self, number):
        self._checkpoint().write(os.path.join(self.directory, f"step{number}"))
        part = os.path.join(self.directory, "part")
        with open(part, "w", encoding="ascii") as file:
            json.dump(number, file)
        os.replace(part, os.path.join(self.directory, "last"))

    def restore(self, number):
        self._checkpoint().read(os.path.join(self.directory, f"step{number}")).assert_consumed()


def begin(task, options, directory="", first=0, last=None, restore=False, health=False, pause_s=0.0):
    """Trains in the background, from a checkpoint if ``restore``, up to a step or until one fails.

    Args:
      directory: where a checkpoint is written after every other step; none, if it is empty.
      health: whether the strategy checks its peers by itself, as it does where there is no coordination service.
    """
    if directory:
        os.makedirs(directory, exist_ok=True)
    training = task.state["chaos"] = _Training(task, options, directory)
    training.last_step = last
    if restore:
        training.restore(first)
    if health:
        extended = training.strategy.extended
        extended._check_health_interval = extended._check_health_timeout = _HEALTH_S
        extended._start_check_health_thread()
    training.thread = threading.Thread(target=training.loop, args=(first, pause_s), daemon=True)
    training.thread.start()


def put(task, what):
    """What befalls this worker's next step: "broken", "exchange" or "start"."""
    task.state["chaos"].next_step = what


def abort(task, reason):
    """What a program may do, and the strategy's health check does."""
    del task
    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, reason)


def end_at(task, number):
    """The loop ends before this step."""
    task.state["chaos"].last_step = number


def progress(task):
    """How many steps have returned, whether the loop is over, and the error that has ended it."""
    training = task.state["chaos"]
    return {"steps": len(training.losses), "over": not training.thread.is_alive(), "error": training.error}


def told(task):
    """The losses of steps that have returned, by their numbers."""
    return {str(number): loss for number, loss in task.state["chaos"].losses.items()}


def variables(task):
    """A digest of all variables, read when the loop is over."""
    digest = hashlib.sha256()
    for variable in task.state["chaos"].variables:
        digest.update(variable.numpy().tobytes())
    return digest.hexdigest()[:16]


def step_again(task):
    """One more step behind the error; the class of its error, None if it has none. Waits for what is left before."""
    if task.spec["protocol"] != STOCK:
        import tfsched

        with contextlib.suppress(tf.errors.OpError):  # the error that has ended the loop, or its like
            tfsched.drain(timeout_s=_DRAIN_S)
    try:
        task.state["chaos"].step(1 << 20).numpy()
    except Exception as error:
        return type(error).__name__
    return None
