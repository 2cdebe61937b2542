"""MultiWorkerMirroredStrategy across the barrier: training step by step, and whoever may look at it in between."""

import tempfile
import time

import tensorflow as tf

from .common import stats
from .mirrored import _BATCH, _WIDTH, Model, _rule, _text, join, passes


def open_training(task, options=None, rule="descent", dtype="float32", clip=False, seen="", poisoned=False):
    """Builds a training step, which stays in this process.

    Args:
      options: of tfsched, as a dict; None leaves it off.
      rule: the optimizer's name.
      dtype: of the reduced gradients.
      clip: clip the gradients, when they are reduced, by their norm.
      seen: what the step shows besides the loss: the "norm" of the reduced gradients, or a "variable" behind its update.
      poisoned: a large variable's update fails in the step that is numbered -1.
    """
    strategy = join(task, options)
    with strategy.scope():
        model, rule = Model(), _rule(rule, dtype)
        rule.build(model.variables_)

    @tf.function
    def step(number):
        def replica(number):
            batch = tf.random.stateless_normal([_BATCH, _WIDTH], [number, 7 + task.spec["index"]])
            with tf.GradientTape() as tape:
                loss = model.loss(batch)
            gradients = tape.gradient(loss, model.variables_)
            shown = [loss]
            if clip or seen or poisoned:
                gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
                if clip:
                    gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
                if seen == "norm":
                    shown.append(tf.linalg.global_norm(gradients))
                if poisoned:
                    gradients[2] = gradients[2][: tf.where(number < 0, 1, _WIDTH)]
                for variable, gradient in zip(model.variables_, gradients, strict=True):
                    variable.assign_sub(0.1 * gradient)
                if seen == "variable":
                    shown.append(tf.reduce_sum(model.variables_[0]))
            else:
                rule.apply_gradients(list(zip(gradients, model.variables_, strict=True)))
            return shown

        return strategy.run(replica, args=(number,))

    def evaluate():
        return [tf.identity(variable) for variable in model.variables_]

    @tf.function
    def assign():
        for variable in model.variables_:
            variable.assign(variable * 0.5)

    task.state["step"], task.state["model"], task.state["rule"] = step, model, rule
    task.state["evaluate"] = {"traced": tf.function(evaluate)}
    task.state["evaluate"]["traced"]()  # before any training
    task.state["evaluate"]["new"] = tf.function(evaluate)
    task.state["assign"] = assign
    task.state["next"] = 0


def steps(task, count=1):
    """Makes so many steps; what each has shown, and how long it took."""
    shown, took_s = [], []
    for _ in range(count):
        begin_s = time.monotonic()
        shown.append([_text(one) for one in task.state["step"](tf.constant(task.state["next"]))])
        took_s.append(time.monotonic() - begin_s)
        task.state["next"] += 1
    return {"shown": shown, "took_s": took_s}


def step_and_look(task, kind):
    """Makes a step and looks at once at all variables in one way; also how many updates were under way when it returned."""
    shown = steps(task)["shown"]
    under_way = stats(task)["background_outstanding"] if task.spec["protocol"] != "grpc" else 0
    return {"shown": shown, "under_way": under_way, "values": look(task, kind)}


def look(task, kind):
    """All variables, read in one way."""
    model = task.state["model"]
    variables = model.variables_
    if kind == "checkpoint":
        with tempfile.TemporaryDirectory() as directory:
            path = tf.train.Checkpoint(model=model).write(f"{directory}/one")
            reader = tf.train.load_checkpoint(path)
            names = [f"model/variables_/{number}/.ATTRIBUTES/VARIABLE_VALUE" for number in range(len(variables))]
            return [_text(reader.get_tensor(name)) for name in names]
    if kind == "eager":  # the last to be updated first
        values = {number: _text(tf.identity(variables[number])) for number in reversed(range(len(variables)))}
        return [values[number] for number in range(len(variables))]
    if kind in task.state["evaluate"]:
        return [_text(one) for one in task.state["evaluate"][kind]()]
    if kind == "with barrier":
        import tfsched

        with tfsched.options(barrier=True):
            return [_text(one) for one in task.state["evaluate"]["new"]()]
    if kind in ("drain", "disable"):
        import tfsched

        getattr(tfsched, kind)()
        assert stats(task)["background_outstanding"] == 0
    if kind == "assign":
        for variable in variables:
            variable.assign(tf.zeros_like(variable))
        return []
    if kind == "assign in a function":
        task.state["assign"]()
        return []
    return [_text(variable) for variable in variables]


def variables(task):
    """All variables, the optimizer's included."""
    return [_text(one) for one in [*task.state["model"].variables_, *task.state["rule"].variables]]


def poison(task):
    """Makes the step whose update fails, and others until one is told; how many were made before, and what was said."""
    task.state["next"] = -1
    for made in range(3):
        try:
            steps(task)
        except Exception as error:
            return {"made": made, "kind": type(error).__name__, "text": str(error)}
    return None


def drained_failures(task, count):
    """Steps whose updates fail, a drain behind each; what each drain has said, and how many functions were made for that."""
    import tfsched
    from tfsched.eager import outstanding

    made, said = len(outstanding._made), []
    for _ in range(count):
        task.state["next"] = -1
        steps(task)
        try:
            tfsched.drain()
            said.append(None)
        except tf.errors.OpError as error:
            said.append(str(error))
    return {"said": said, "made": len(outstanding._made) - made}


def read_in_dataset(task):
    """Makes a step and reads a small variable in a dataset's function at once; what it read, and the same by name."""
    import tfsched

    variable = task.state["model"].variables_[2]
    data = tf.data.Dataset.range(3).map(lambda _: tf.reduce_sum(variable))
    seen = []
    for one in data:  # each element is made when it is asked for
        seen.append([_text(one), _text(tf.reduce_sum(variable))])
        steps(task)
    from tfsched.eager import own_updates

    own_updates.refused = False  # for what the process is asked for next
    return {"seen": seen, "outstanding": tfsched.stats()["background_outstanding"]}


def report(task):
    """What the pass did to the last training graph."""
    from tfsched.grappler.bridge import pass_stats

    stats = pass_stats()
    return {**passes(task), "crossing": stats.crossing, "kept": stats.kept}


def waits(task):
    """How often a function had to be waited for in Python: a plain loop of steps must not."""
    from tfsched.eager import own_updates

    task.state["waited"] = []
    stock = own_updates.wait_for

    def wait_for(inputs):
        task.state["waited"].append(len(inputs))
        stock(inputs)

    own_updates.wait_for = wait_for
    try:
        steps(task, 5)
    finally:
        own_updates.wait_for = stock
    return task.state["waited"]
