"""Kinds of training that all-reduce: optimizers, precisions and gradients that people use, each as one step.

What is opened here is stepped, read and reported by mirrored_crossing.py.
"""

import tensorflow as tf

from .mirrored import _BATCH, _WIDTH, Descent, Model

_WORDS = 300


class _Kind:
    """A model and the step that trains it; kinds that differ from plain descent override what they do otherwise."""

    def build(self):
        """Makes the variables, within the strategy's scope."""
        self.model = self.make_model()
        self.rules = self.make_rules()
        for rule, mine in zip(self.rules, self.parts(), strict=True):
            rule.build(mine)

    def make_model(self):
        return Model()

    def make_rules(self):
        return [Descent()]

    def parts(self):
        """The variables of each optimizer."""
        return [self.model.variables_]

    def loss(self, batch, number):
        del number
        return self.model.loss(batch)

    def gradients(self, batch, number):
        """(what the step shows, gradients)."""
        with tf.GradientTape() as tape:
            loss = self.loss(batch, number)
        return loss, tape.gradient(loss, self.model.variables_)

    def apply(self, gradients):
        by_variable = {one.ref(): gradient for one, gradient in zip(self.model.variables_, gradients, strict=True)}
        for rule, mine in zip(self.rules, self.parts(), strict=True):
            rule.apply_gradients([(by_variable[one.ref()], one) for one in mine])

    @property
    def variables(self):
        """Of the optimizers."""
        return [one for rule in self.rules for one in rule.variables]


def _tf_keras(name, **arguments):
    import tf_keras

    return getattr(tf_keras.optimizers, name)(**arguments)


class Sgd(_Kind):
    def make_rules(self):
        return [_tf_keras("SGD", learning_rate=0.1)]


class Momentum(_Kind):
    def make_rules(self):
        return [_tf_keras("SGD", learning_rate=0.1, momentum=0.9)]


class Adam(_Kind):
    def make_rules(self):
        return [_tf_keras("Adam", learning_rate=0.01)]


class _Bfloat16(_Kind):
    """Gradients are reduced as bfloat16. (Variables cannot be: the strategy could not give them their first values.)"""

    def apply(self, gradients):
        gradients = [tf.cast(one, tf.bfloat16) for one in gradients]
        sums = tf.distribute.get_replica_context().all_reduce("sum", gradients)
        pairs = [(tf.cast(one, tf.float32), variable) for one, variable in zip(sums, self.model.variables_, strict=True)]
        self.rules[0].apply_gradients(pairs, skip_gradients_aggregation=True)


class SgdBfloat16(_Bfloat16, Sgd):
    pass


class MomentumBfloat16(_Bfloat16, Momentum):
    pass


class AdamBfloat16(_Bfloat16, Adam):
    pass


class MixedPrecision(_Kind):
    """Computes in float16, with a loss scale that grows and shrinks."""

    def make_rules(self):
        import tf_keras

        inner = _tf_keras("Adam", learning_rate=0.01)
        return [tf_keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=1024, dynamic_growth_steps=3)]

    def gradients(self, batch, number):
        rule = self.rules[0]
        with tf.GradientTape() as tape:
            hidden = tf.cast(batch, tf.float16)
            variables = [tf.cast(one, tf.float16) for one in self.model.variables_]
            for weight, bias in zip(variables[::2], variables[1::2], strict=True):
                hidden = tf.tanh(hidden @ weight + bias)
            loss = tf.reduce_mean(tf.square(tf.cast(hidden, tf.float32) - 0.5))
            scaled = rule.get_scaled_loss(loss)
        return loss, rule.get_unscaled_gradients(tape.gradient(scaled, self.model.variables_))


class Ema(_Kind):
    """The optimizer keeps an exponential moving average of each variable."""

    def make_rules(self):
        return [_tf_keras("SGD", learning_rate=0.1, use_ema=True, ema_momentum=0.9)]


class AdamW(_Kind):
    """Weight decay is an update by itself."""

    def make_rules(self):
        return [_tf_keras("AdamW", learning_rate=0.01, weight_decay=0.01)]


class Embedding(_Kind):
    """The gradient of the table is sparse."""

    def make_model(self):
        model = Model()
        model.variables_.insert(0, tf.Variable(tf.random.stateless_normal([_WORDS, _WIDTH], [9, 1])))
        return model

    def loss(self, batch, number):
        table, *layers = self.model.variables_
        words = tf.random.stateless_uniform([_BATCH], [number, 5], 0, _WORDS, tf.int32)
        hidden = batch + tf.nn.embedding_lookup(table, words)
        for weight, bias in zip(layers[::2], layers[1::2], strict=True):
            hidden = tf.tanh(hidden @ weight + bias)
        return tf.reduce_mean(tf.square(hidden - 0.5))

    def make_rules(self):
        return [_tf_keras("Adam", learning_rate=0.01)]


class ClipNorm(_Kind):
    """The optimizer clips each sum by its norm."""

    def make_rules(self):
        return [_tf_keras("SGD", learning_rate=0.1, clipnorm=0.001)]


class GlobalClipNorm(_Kind):
    """The optimizer clips all sums by their common norm."""

    def make_rules(self):
        return [_tf_keras("SGD", learning_rate=0.1, global_clipnorm=0.001)]


class ClipSums(_Kind):
    """The program clips each sum by its norm."""

    def apply(self, gradients):
        sums = tf.distribute.get_replica_context().all_reduce("sum", gradients)
        for variable, one in zip(self.model.variables_, sums, strict=True):
            variable.assign_sub(0.1 * tf.clip_by_norm(one, 0.001))


class JitGradients(_Kind):
    """XLA compiles the forward and the backward pass."""

    def build(self):
        super().build()
        self.compiled = tf.function(super().gradients, jit_compile=True)

    def gradients(self, batch, number):
        return self.compiled(batch, number)


class JitUpdate(_Kind):
    """XLA compiles each update."""

    def make_rules(self):
        rule = _tf_keras("Adam", learning_rate=0.01)
        rule.jit_compile = True  # as an argument it counts where there is a GPU only
        return [rule]


class TwoOptimizers(_Kind):
    def make_rules(self):
        return [_tf_keras("SGD", learning_rate=0.1, momentum=0.9), _tf_keras("Adam", learning_rate=0.01)]

    def parts(self):
        return [self.model.variables_[:3], self.model.variables_[3:]]


KINDS = {
    "sgd": Sgd,
    "momentum": Momentum,
    "adam": Adam,
    "sgd bfloat16": SgdBfloat16,
    "momentum bfloat16": MomentumBfloat16,
    "adam bfloat16": AdamBfloat16,
    "mixed precision": MixedPrecision,
    "moving averages": Ema,
    "adamw": AdamW,
    "embedding": Embedding,
    "clip norms": ClipNorm,
    "clip global norm": GlobalClipNorm,
    "clip sums": ClipSums,
    "jit gradients": JitGradients,
    "jit update": JitUpdate,
    "two optimizers": TwoOptimizers,
}


def open_training(task, kind, options=None):
    """Builds the training step of a kind, which stays in this process; ``options`` as in mirrored_crossing.py."""
    from .mirrored import join

    strategy = join(task, options)
    with strategy.scope():
        training = KINDS[kind]()
        training.build()

    @tf.function
    def step(number):
        def replica(number):
            batch = tf.random.stateless_normal([_BATCH, _WIDTH], [number, 7 + task.spec["index"]])
            loss, gradients = training.gradients(batch, number)
            training.apply(gradients)
            return [tf.cast(loss, tf.float32)]

        return strategy.run(replica, args=(number,))

    task.state["step"], task.state["model"], task.state["rule"] = step, training.model, training
    task.state["evaluate"] = {"new": tf.function(lambda: [tf.identity(one) for one in training.model.variables_])}
    task.state["next"] = 0
