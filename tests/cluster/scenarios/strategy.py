"""Training with ParameterServerStrategy in the coordinator's process: custom loops and tf_keras."""

import os

import tensorflow as tf

_WIDTH = 48
_BATCH = 4
_LAYERS = 4


def join(task, shards=1):
    """The strategy and the coordinator of this process; made once."""
    if "strategy" not in task.state:
        partitioner = tf.distribute.experimental.partitioners.FixedShardsPartitioner(shards) if shards > 1 else None
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

    def __init__(self, width=_WIDTH):
        super().__init__()
        self.width = width
        self.weights, self.biases = [], []
        for layer in range(_LAYERS):
            self.weights.append(tf.Variable(tf.random.stateless_normal([width, width], [layer, 1]) * width**-0.5))
            self.biases.append(tf.Variable(tf.zeros([width])))

    def loss(self, batch):
        """Of a batch of vectors."""
        hidden = batch
        for weight, bias in zip(self.weights, self.biases, strict=True):
            hidden = tf.tanh(hidden @ weight + bias)
        return tf.reduce_mean(tf.square(hidden - 0.5))


class WithTable(Model):
    """The same behind an embedding."""

    def __init__(self):
        super().__init__(2 * _WIDTH)  # half of a weight is still large enough to be sent ahead
        self.table = tf.Variable(tf.random.stateless_normal([64, self.width], [9, 1]))

    def loss(self, batch):
        """Of a batch of vectors, whose places in the table are the same in every batch."""
        return super().loss(batch + tf.nn.embedding_lookup(self.table, [3, 60, 3, 31]))


def _parts(variables):
    """What the variables consist of: a variable in shards of these, another of itself."""
    return [part for variable in variables for part in getattr(variable, "variables", [variable])]


class Descent:
    """Gradient descent of assignments; tf_keras' optimizers cannot tell the shards of variables without names apart."""

    variables = ()

    def build(self, variables):
        """Has no slots."""

    def apply_gradients(self, pairs):
        """Subtracts 0.3 times each gradient."""
        for gradient, variable in pairs:
            if isinstance(gradient, tf.IndexedSlices):
                variable.scatter_sub(tf.IndexedSlices(0.3 * gradient.values, gradient.indices))
            else:
                variable.assign_sub(0.3 * gradient)


def optimizer_of(name):
    """One of tf_keras', or ours."""
    import tf_keras

    return {"descent": Descent, "sgd": lambda: tf_keras.optimizers.SGD(0.3), "adam": lambda: tf_keras.optimizers.Adam(0.01)}[
        name
    ]()


def train(task, options=None, optimizer="sgd", steps=200, shards=1, directory=None, save_every=0):
    """A custom loop.

    ``shards``: in how many parts each variable is, behind an embedding if more than one. Every ``save_every`` steps a
    checkpoint is written to the directory; what is there already is restored, and the loop goes on from its step.

    Returns:
      Every loss and every variable afterwards, as hexadecimal text, and the variables in every checkpoint.
    """
    strategy, coordinator = join(task, shards)
    switch(options)
    with strategy.scope():
        model, rule = WithTable() if shards > 1 else Model(), optimizer_of(optimizer)
        variables = _parts([*model.weights, *model.biases, *([model.table] if shards > 1 else [])])
        rule.build(variables)

    def replica(number):
        batch = tf.random.stateless_normal([_BATCH, model.width], [number, 7])
        with tf.GradientTape() as tape:
            loss = model.loss(batch)
        rule.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    @tf.function
    def step(number):
        return strategy.run(replica, args=(number,))

    def texts():
        return [variable.numpy().tobytes().hex() for variable in [*variables, *rule.variables]]

    first, saved = 0, []
    if directory:
        checkpoint = tf.train.Checkpoint(model=model, rule=rule)
        manager = tf.train.CheckpointManager(checkpoint, directory, max_to_keep=None)
        if manager.restore_or_initialize():
            first = int(os.path.basename(manager.latest_checkpoint).rpartition("-")[2])
    values = []
    for number in range(first, steps):
        values.append(coordinator.schedule(step, args=(tf.constant(number),)))
        if directory and (number + 1) % save_every == 0:
            coordinator.join()
            saved.append(_content(manager.save(number + 1)))
    coordinator.join()
    losses = [float(value.fetch()).hex() for value in values]
    return {"losses": losses, "variables": texts(), "saved": saved}


def _content(path):
    """A checkpoint's variables of the model and the optimizer, as hexadecimal text."""
    reader = tf.train.load_checkpoint(path)
    names = [name for name in reader.get_variable_to_dtype_map() if name.startswith(("model/", "rule/"))]
    return {name: reader.get_tensor(name).tobytes().hex() for name in sorted(names)}


def fit(task, options=None, optimizer="sgd", steps=200, steps_per_execution=1, callbacks=()):
    """tf_keras' Model.fit; the history and every variable afterwards, as hexadecimal text."""
    import tf_keras

    strategy, _ = join(task)
    switch(options)
    with strategy.scope():
        tf_keras.utils.set_random_seed(1)
        model = tf_keras.Sequential(
            [tf_keras.layers.Dense(_WIDTH, activation="tanh", input_shape=(_WIDTH,)) for _ in range(_LAYERS)]
        )
        model.compile(optimizer_of(optimizer), loss="mse", steps_per_execution=steps_per_execution)

    def dataset(context=None):
        inputs = tf.random.stateless_normal([64, _WIDTH], [1, 2])
        return tf.data.Dataset.from_tensor_slices((inputs, tf.roll(inputs, 1, axis=1))).batch(_BATCH).repeat()

    data = tf_keras.utils.experimental.DatasetCreator(dataset)
    history = model.fit(data, epochs=4, steps_per_epoch=steps // 4, verbose=0, callbacks=list(callbacks))
    values = [variable.numpy().tobytes().hex() for variable in [*model.variables, *model.optimizer.variables]]
    return {"losses": [loss.hex() for loss in map(float, history.history["loss"])], "variables": values}
