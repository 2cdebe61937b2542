"""Steps that leave a mark for each time they were applied: on every variable, one element for every step."""

import tempfile
import time

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import execute

from . import strategy as strategies

_VARIABLES = 4
_SIZE = 4108  # elements beside the marks, so that there is something to send; whole blocks of 64 bytes with 20 and 500 marks


class Counters(tf.Module):
    """The variables, and a step that marks them."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps
        self.marks = [tf.Variable(tf.zeros([steps + _SIZE])) for _ in range(_VARIABLES)]

    def mark(self, number):
        """Reads all variables, as a training step does, and adds one to the element of step ``number`` of each."""
        seen = tf.add_n([tf.reduce_sum(mark) for mark in self.marks])
        for index, mark in enumerate(self.marks):
            nothing = tf.minimum(tf.abs(seen + index), 0.0)  # which Grappler does not know, as it would of 0 * seen
            mark.assign_add(tf.one_hot(number, self.steps + _SIZE) + nothing)  # another tensor for each
        return seen

    def counts(self):
        """Per variable: how often each step was applied."""
        return [mark.numpy()[: self.steps].astype(int).tolist() for mark in self.marks]


def _prepare(task, options, steps):
    strategy, coordinator = strategies.join(task)
    strategies.switch(options)
    with strategy.scope():
        counters = Counters(steps)

    @tf.function
    def step(number):
        return strategy.run(counters.mark, args=(number,))

    return coordinator, counters, step


def _with_data(coordinator, step):
    """The step behind an element of its worker's dataset, and the datasets' iterators."""

    @tf.function
    def step_on(iterator, number):
        return step(number + 0 * next(iterator))

    dataset = coordinator.create_per_worker_dataset(
        lambda: tf.data.Dataset.range(10).map(lambda x: tf.cast(x, tf.int32)).repeat()
    )
    return step_on, iter(dataset)


def count(task, options=None, steps=500, data=False):
    """Schedules all steps and joins; how often each was applied to each variable, and how many were given back."""
    coordinator, counters, step = _prepare(task, options, steps)
    arguments = ()
    if data:
        step, iterators = _with_data(coordinator, step)
        arguments = (iterators,)
    task.state["values"] = []
    for number in range(steps):
        task.state["values"].append(coordinator.schedule(step, args=(*arguments, tf.constant(number))))
    coordinator.join()
    confirmers = [worker.__dict__.get("_tfsched_confirmer") for worker in coordinator._cluster.workers]
    places = [tf.DeviceSpec.from_string(value._get_values().device).task for value in task.state["values"]]
    return {
        "counts": counters.counts(),
        "given back": sum(one.given_back for one in confirmers if one is not None),
        "steps of workers": [places.count(index) for index in range(len(confirmers))],
    }


def count_around_updates(task, options, steps, limit_s=90):
    """Schedules all steps and joins, again and again until TensorFlow has updated the cluster, but for ``limit_s`` at most.

    The rounds; how often each step was applied to each variable; how often the cluster was updated, and how many calls on
    workers began close to that. Close is within the update, or before it and not ended when it began, but for calls that had
    lasted for two seconds.
    """
    coordinator, counters, step = _prepare(task, options, steps)
    updates, calls = [], []
    stock_update, stock_call = pywrap_tfe.TFE_ContextUpdateServerDef, execute.execute_with_cancellation

    def noted(into, function):
        def call(*args):
            span = [time.monotonic(), float("inf")]
            into.append(span)
            try:
                return function(*args)
            finally:
                span[1] = time.monotonic()

        return call

    pywrap_tfe.TFE_ContextUpdateServerDef = noted(updates, stock_update)
    execute.execute_with_cancellation = noted(calls, stock_call)
    rounds, deadline_s = 0, time.monotonic() + limit_s
    task.state["values"] = []
    try:
        while not ((updates and updates[-1][1] < time.monotonic()) or time.monotonic() > deadline_s):
            rounds += 1
            for number in range(steps):
                task.state["values"].append(coordinator.schedule(step, args=(tf.constant(number),)))
            coordinator.join()
    finally:
        pywrap_tfe.TFE_ContextUpdateServerDef, execute.execute_with_cancellation = stock_update, stock_call
    close = [call for begin, end in updates for call in calls if begin - 2 < call[0] < end and call[1] > begin]
    return {"rounds": rounds, "counts": counters.counts(), "updates": len(updates), "close": len(close)}


def count_beside(task, options, steps):
    """As count(), while this process calls a function on a worker itself."""
    coordinator, counters, step = _prepare(task, options, steps)
    look = tf.function(lambda: tf.add_n([tf.reduce_sum(mark) for mark in counters.marks]))
    for number in range(steps):
        coordinator.schedule(step, args=(tf.constant(number),))
        with tf.device("/job:worker/task:0"):
            look()
    coordinator.join()
    return {"counts": counters.counts()}


def progress(task):
    """How many of the steps have returned."""
    return sum(value._status_available_event.is_set() for value in task.state.get("values", []))


def seen(task, options, steps=500, rounds=5):
    """Rounds that end with a join. Of each step, in the order in which its worker took them: (worker, round, marks read)."""
    coordinator, _, step = _prepare(task, options, steps)
    rows = []
    for turn in range(rounds):
        numbers = range(turn * steps // rounds, (turn + 1) * steps // rounds)
        values = [coordinator.schedule(step, args=(tf.constant(number),)) for number in numbers]
        coordinator.join()
        for value in values:
            worker = tf.DeviceSpec.from_string(value._get_values().device).task
            rows.append((worker, turn, round(float(value.fetch()) / _VARIABLES)))
    return rows


def visible(task, options, steps=20):
    """What a step has done is there once its result is: for reads, checkpoints, functions. The looks that missed it."""
    coordinator, counters, step = _prepare(task, options, steps)
    checkpoint = tf.train.Checkpoint(marks=counters.marks)
    total = tf.function(lambda: tf.add_n([tf.reduce_sum(mark) for mark in counters.marks]))
    missed = []
    with tempfile.TemporaryDirectory() as directory:
        for number in range(steps):
            coordinator.schedule(step, args=(tf.constant(number),)).fetch()
            if number % 4 == 0:
                looks = [mark.numpy()[number] for mark in counters.marks]
            elif number % 4 == 1:
                path = checkpoint.write(f"{directory}/{number}")
                reader = tf.train.load_checkpoint(path)
                names = [name for name in reader.get_variable_to_shape_map() if name.endswith("VARIABLE_VALUE")]
                looks = [reader.get_tensor(name)[number] for name in names]
            elif number % 4 == 2:
                looks = [total().numpy() / _VARIABLES / (number + 1)] * _VARIABLES
            else:
                counters.marks[0].assign_add(tf.zeros_like(counters.marks[0]))
                coordinator.join()
                looks = [mark.numpy()[number] for mark in counters.marks]
            if [float(look) for look in looks] != [1.0] * _VARIABLES:
                missed.append((number, [float(look) for look in looks]))
    return missed


def behind_an_error(task, options, steps=500):
    """Queues an error and then all steps, and lets the workers begin; how often each was applied by the end of join()."""
    strategy, coordinator = strategies.join(task)
    _, counters, step = _prepare(task, options, steps)
    with strategy.scope():
        held = tf.Variable(True)

    @tf.function
    def hold():
        while held:
            pass

    @tf.function
    def fail():
        tf.debugging.assert_negative(tf.reduce_sum(counters.marks[0]))

    for _ in coordinator._cluster.workers:
        coordinator.schedule(hold)
    coordinator.schedule(fail)
    values = [coordinator.schedule(step, args=(tf.constant(number),)) for number in range(steps)]
    held.assign(False)
    error = "none"
    try:
        coordinator.join()
    except tf.errors.InvalidArgumentError:
        error = "told"
    coordinator.join()  # nothing is left: the queue has been emptied
    cancelled = sum(isinstance(value._get_error(), tf.errors.CancelledError) for value in values)
    return {"error": error, "cancelled": cancelled, "counts": counters.counts()}


def elsewhere(task, options, other, steps=8):
    """Joins the cluster ``other`` as soon as the steps have returned: what is left of them then, and the counts there."""
    coordinator, _, step = _prepare(task, options, steps)
    for value in [coordinator.schedule(step, args=(tf.constant(number),)) for number in range(steps)]:
        value.fetch()
    unconfirmed = coordinator._cluster.closure_queue.inflight_closure_count
    task.state.clear()
    task.spec = {**task.spec, "cluster": other}
    _, counters, step = there = _prepare(task, options, steps)
    left = coordinator._cluster.closure_queue.inflight_closure_count
    for number in range(steps):
        there[0].schedule(step, args=(tf.constant(number),))
    there[0].join()
    confirmers = [worker.__dict__.get("_tfsched_confirmer") for worker in coordinator._cluster.workers]
    given_back = sum(one.given_back for one in confirmers if one is not None)
    return {"unconfirmed": unconfirmed, "left": left, "given back": given_back, "counts": counters.counts()}
