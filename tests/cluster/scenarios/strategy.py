"""Training with ParameterServerStrategy, in the coordinator's process: custom loops and tf_keras, with and without tfsched."""

import tensorflow as tf

_WIDTH = 48
_BATCH = 4
_LAYERS = 4


def join(task, partitioner=None):
    """The strategy and the coordinator of this process; made once."""
    if "strategy" not in task.state:
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(task.spec["cluster"]), task_type="chief", task_id=0, rpc_layer=task.spec["protocol"]
        )
        task.state["strategy"] = tf.distribute.ParameterServerStrategy(resolver, variable_partitioner=partitioner)
        task.state["coordinator"] = tf.distribute.coordinator.ClusterCoordinator(task.state["strategy"])
    return task.state["strategy"], task.state["coordinator"]


def switch(options):
    """Enables tfsched with ``options`` (a dict), or disables it (None)."""
    import tfsched

    if options is None:
        tfsched.disable()
    else:
        tfsched.enable(tfsched.Options(**options))


class Model(tf.Module):
    """A chain of layers whose variables are on the parameter servers."""

    def __init__(self):
        super().__init__()
        self.weights, self.biases = [], []
        for layer in range(_LAYERS):
            generator = tf.random.Generator.from_seed(layer)
            self.weights.append(tf.Variable(generator.normal([_WIDTH, _WIDTH], stddev=_WIDTH**-0.5)))
            self.biases.append(tf.Variable(tf.zeros([_WIDTH])))

    def loss(self, batch):
        """Of a batch of vectors."""
        hidden = batch
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = tf.tanh(hidden @ weight + bias)
        return tf.reduce_mean(tf.square(hidden - 0.5))


def optimizer_of(name):
    """One of tf_keras'."""
    import tf_keras

    return {"sgd": lambda: tf_keras.optimizers.SGD(0.3), "adam": lambda: tf_keras.optimizers.Adam(0.01)}[name]()


def train(task, options=None, optimizer="sgd", steps=200):
    """A custom loop; every loss and every variable afterwards, as hexadecimal text."""
    strategy, coordinator = join(task)
    switch(options)
    with strategy.scope():
        model, rule = Model(), optimizer_of(optimizer)
        variables = [*model.weights, *model.biases]
        rule.build(variables)

    def replica(number):
        batch = tf.random.stateless_normal([_BATCH, _WIDTH], [number, 7])
        with tf.GradientTape() as tape:
            loss = model.loss(batch)
        rule.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    @tf.function
    def step(number):
        return strategy.run(replica, args=(number,))

    values = [coordinator.schedule(step, args=(tf.constant(number),)) for number in range(steps)]
    coordinator.join()
    losses = [float(value.fetch()).hex() for value in values]
    return {"losses": losses, "variables": [variable.numpy().tobytes().hex() for variable in [*variables, *rule.variables]]}
