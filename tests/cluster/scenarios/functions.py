"""Training steps that are tf.functions, in the coordinator's process: what crosses the barrier, and who sees it when."""

import tensorflow as tf

from . import strategy as strategies

WORKER = "/job:worker/replica:0/task:0"
_WIDTH = 48


class _Plain:
    """Gradient descent written with ``assign_sub``."""

    variables = ()

    def apply(self, gradients, variables):
        for gradient, variable in zip(gradients, variables, strict=True):
            with tf.device(variable.device):
                variable.assign_sub(0.1 * gradient)


class _ByHand:
    """Momentum written with ``assign``s, as a tf.Module would have it: the second reads what the first has written.

    The strategy spreads variables as they come, so some slots are on another server than their variable.
    """

    def __init__(self, variables, rate=0.1, momentum=0.9):
        self._rate, self._momentum = rate, momentum
        self.variables = [tf.Variable(tf.zeros(variable.shape)) for variable in variables]

    def apply(self, gradients, variables):
        for gradient, variable, slot in zip(gradients, variables, self.variables, strict=True):
            with tf.device(variable.device):
                slot.assign(self._momentum * slot - self._rate * gradient)
                variable.assign_add(slot)


class Training:
    """A model and its functions; scheduled one by one, each fetched.

    Args:
      task: the coordinator's.
      optimizer: "sgd", "adam", "legacy_adam" (tf_keras), "plain", "by_hand".
      poisoned: a gradient can be given a shape with which its update fails.
    """

    def __init__(self, task, optimizer, poisoned=False):
        strategy, self.coordinator = strategies.join(task)
        with strategy.scope():
            self.model = strategies.Model()
            variables = [*self.model.weights, *self.model.biases]
            rule = self._rule(optimizer, variables)
        self.variables = [*variables, *(rule.variables() if callable(rule.variables) else rule.variables)]

        def replica(number, poison):
            batch = tf.random.stateless_normal([4, _WIDTH], [number, 7])
            with tf.GradientTape() as tape:
                loss = self.model.loss(batch)
            gradients = tape.gradient(loss, variables)
            if poisoned:
                gradients[0] = gradients[0][: _WIDTH - poison]  # fits the variable only if nothing is missing
            if optimizer in ("by_hand", "plain"):
                rule.apply(gradients, variables)
            else:
                rule.apply_gradients(zip(gradients, variables, strict=True))
            return loss

        self.step = tf.function(lambda number, poison: strategy.run(replica, args=(number, poison)))
        self.look = tf.function(lambda: tf.add_n([tf.reduce_sum(tf.abs(variable)) for variable in variables]))
        self.number = 0

    def _rule(self, name, variables):
        import tf_keras

        if name in ("by_hand", "plain"):
            return _ByHand(variables) if name == "by_hand" else _Plain()
        if name == "legacy_adam":
            rule = tf_keras.optimizers.legacy.Adam(0.01)
            rule._create_all_weights(variables)
            return rule
        rule = strategies.optimizer_of(name)
        rule.build(variables)
        return rule

    def schedule(self, function, *arguments):
        """The value of one scheduled call, not yet joined: the coordinator would wait for the updates."""
        return float(self.coordinator.schedule(function, args=arguments).fetch()).hex()

    def train(self, poison=0):
        """One step's loss."""
        self.number += 1
        return self.schedule(self.step, tf.constant(self.number), tf.constant(poison))


def open_training(task, options, optimizer, **more):
    """Makes the training that the other scenarios use."""
    strategies.switch(options)
    task.state["training"] = Training(task, optimizer, **more)


def steps(task, count, look_every=0, poison=0):
    """Losses of the next steps, and what the second function saw after some of them."""
    training = task.state["training"]
    seen = []
    for number in range(count):
        seen.append(training.train(poison))
        if look_every and number % look_every == 0:
            seen.append(training.schedule(training.look))
    return seen


def poison(task):
    """One step whose update fails; what was said, by the step or when the coordinator joined."""
    said = []
    for attempt in (lambda: steps(task, 1, poison=40), task.state["training"].coordinator.join):
        try:
            attempt()
        except tf.errors.InvalidArgumentError as error:
            said.append(str(error))
    return said


def variables(task):
    """Every variable's bytes, as hexadecimal text, when all updates are applied."""
    training = task.state["training"]
    training.coordinator.join()
    return [variable.numpy().tobytes().hex() for variable in training.variables]


def report(task):
    """Of this process's pass (functions of workers are rewritten there): what it did with the last training graph."""
    from tfsched.grappler.bridge import pass_stats

    stats = pass_stats()
    return {"crossing": stats.crossing, "kept": stats.kept, "errors": stats.errors, "last_error": stats.last_error}


def cap(task, rate_bps):
    """Limits what the scheduler of this process hands over."""
    import tfsched

    tfsched.configure(rate_bps=rate_bps)
