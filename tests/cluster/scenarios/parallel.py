"""tfsched.parallel: each worker runs the same program, which joins the others by TF_CONFIG."""

import json
import os
import socket
import threading

import numpy as np
import tensorflow as tf

_ROWS, _WIDTH = 8, 40


def join(task, options=None, **arguments):
    """tfsched.parallel in this process, once it has joined."""
    import tfsched
    import tfsched.parallel as parallel

    job, index = task.spec["job"], task.spec["index"]
    cluster = {"worker": task.spec["cluster"]["worker"]}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
    parallel.init(None if options is None else tfsched.Options(**options), **arguments)
    return parallel


def join_within(task, timeout_s):
    """Joins, or ends the process."""
    join(task, timeout_s=timeout_s)


def values(task):
    """Every collective, in eager mode and in a function, with what each worker gives made from its rank."""
    parallel = join(task)
    rank = parallel.rank()

    def vector(count, dtype="float32"):
        return tf.cast(tf.range(count) + 1 + rank, dtype)

    def reductions():
        result = {}
        for op in parallel.ReduceOp:
            dtype = "float64" if op is parallel.Average else "int32"
            result[op.name] = [parallel.allreduce(vector(count, dtype), op) for count in (3, 500)]
        result["grouped"] = parallel.grouped_allreduce(
            [vector(4), vector(200_000), vector(3, "float16"), tf.reshape(vector(6), [2, 3])], parallel.Sum
        )
        return result

    def others():
        rows = tf.reshape(vector(2 * (rank + 1), "int64"), [rank + 1, 2])
        return {
            "gathered": parallel.allgather(rows),
            "gathered_scalars": parallel.allgather(tf.constant(rank, tf.uint8)),
            "gathered_nothing": parallel.allgather(tf.zeros([0 if rank else 2, 3])),
            "broadcast": [parallel.broadcast(vector(3, name), 1) for name in ("float32", "bfloat16", "uint8", "uint64")],
            "broadcast_booleans": parallel.broadcast(tf.constant([rank == 0, rank == 1])),
        }

    def listed(made):
        return tf.nest.map_structure(lambda one: tf.cast(one, tf.float64).numpy().tolist(), made)

    function = tf.function(lambda: {**reductions(), **others()})
    variables = [tf.Variable(vector(3)), tf.Variable(vector(2, "int64")), tf.Variable(vector(1))]
    parallel.broadcast_variables(variables, root_rank=1)
    parallel.barrier()
    return {
        "eager": listed({**reductions(), **others()}),
        "function": listed(function()),
        "again": listed(function()),
        "variables": [variable.numpy().tolist() for variable in variables],
        "object": parallel.broadcast_object({"told by": rank, "long": "x" * 1001}, root_rank=1),
        "sizes": [parallel.rank(), parallel.size(), parallel.local_rank(), parallel.local_size()],
    }


def in_loops(task):
    """A function that is called twice by another, in a loop, on workers that trace at different times."""
    parallel = join(task)
    rank = parallel.rank()

    @tf.function
    def total(tensor):
        return parallel.allreduce(tensor, parallel.Sum)

    @tf.function
    def loop(turns):
        made = tf.zeros([100])
        for turn in tf.range(turns):
            made += total(tf.fill([100], tf.cast(turn + rank, tf.float32))) + total(tf.ones([100]))
        return made

    if rank == 0:
        loop(tf.constant(0))  # traced before all others
    return [loop(tf.constant(turns)).numpy().tolist() for turns in (3, 5)]


def until_the_end(task):
    """Steps within whose functions the input comes to its end, again and again."""
    parallel = join(task)

    @tf.function
    def step(iterator):
        first, second = next(iterator)
        return parallel.grouped_allreduce([first, second], parallel.Sum)

    made = []
    for turn in range(30):
        rows = tf.data.Dataset.from_tensors((tf.fill([100], turn + 1.0), tf.ones([2])))
        iterator = iter(rows)
        made.append(float(step(iterator)[0][0]))
        try:
            step(iterator)
        except tf.errors.OutOfRangeError:
            continue
        raise AssertionError("there was no end")
    return made


def _data(rank, workers, steps=4):
    """The rows of one worker, or of all with ``rank`` None: batch after batch, as one process would see them."""
    inputs = tf.random.stateless_normal([steps, workers, _ROWS, _WIDTH], [3, 4])
    chosen = inputs if rank is None else inputs[:, rank : rank + 1]
    rows = tf.reshape(chosen, [-1, _WIDTH])
    size = _ROWS * (workers if rank is None else 1)
    return tf.data.Dataset.from_tensor_slices((rows, tf.roll(rows, 1, axis=1))).batch(size)


def _keras(name):
    if name == "keras":
        import keras

        return keras
    import tf_keras

    return tf_keras


def fit(task, library="keras", alone=False, seed=0, epochs=2, more=(), **compiled):
    """Model.fit on this worker's rows, or of one process on all; history and weights afterwards.

    Args:
      library: "keras" or "tf_keras".
      alone: as a program without tfsched would train.
      seed: of the weights; other workers have others, which the broadcast replaces.
      more: callbacks behind those of tfsched.parallel.
      compiled: for compile().
    """
    parallel = join(task)
    keras = _keras(library)
    rank = None if alone else parallel.rank()
    keras.utils.set_random_seed(seed + (rank or 0))
    model = keras.Sequential(
        [keras.layers.Input([_WIDTH]), keras.layers.Dense(160, activation="tanh"), keras.layers.Dense(_WIDTH)]
    )
    optimizer, callbacks = keras.optimizers.Adam(0.01), []
    if not alone:
        optimizer = parallel.DistributedOptimizer(optimizer)
        callbacks = [parallel.callbacks.BroadcastGlobalVariablesCallback(0), parallel.callbacks.MetricAverageCallback()]
    model.compile(optimizer, loss="mse", metrics=["mae"], **compiled)
    history = model.fit(_data(rank, parallel.size()), epochs=epochs, verbose=0, callbacks=[*callbacks, *more])
    weights = [np.asarray(weight).tolist() for weight in model.get_weights()]
    return {"history": history.history, "weights": weights, "class": type(model.optimizer).__name__}


def fit_across_the_barrier(task, crosses):
    """Keras 3's Model.fit over a slow link: weights after each batch and epoch, and how many steps left updates behind."""
    import tfsched

    parallel = join(task)
    keras = _keras("keras")
    keras.utils.set_random_seed(5)
    layers = [keras.layers.Dense(200, activation="tanh", use_bias=False) for _ in range(4)]
    model = keras.Sequential([keras.layers.Input([_WIDTH]), *layers, keras.layers.Dense(_WIDTH, use_bias=False)])
    model.compile(parallel.DistributedOptimizer(keras.optimizers.Adam(0.01)), loss="mse")
    seen = []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(layers[2].kernel.numpy().sum().item()),
        on_epoch_end=lambda epoch, logs: seen.append(float(logs["val_loss"])),
    )
    data, before = _data(parallel.rank(), parallel.size()), tfsched.stats()["background_calls"]
    tfsched.configure(rate_bps=1e8)
    try:
        with tfsched.options(tfsched.Options(policy="bytescheduler", barrier=not crosses)):
            history = model.fit(data, epochs=2, verbose=0, validation_data=data, callbacks=[watch])
            weights = [np.asarray(weight).tolist() for weight in model.get_weights()]
    finally:
        tfsched.configure(rate_bps=0)
    crossed = tfsched.stats()["background_calls"] - before
    return {"seen": seen, "loss": history.history["loss"], "weights": weights, "crossed": crossed}


def warmup(task, library):
    """The learning rate of each batch, while it grows."""
    parallel = join(task)
    keras = _keras(library)
    model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(1)])
    model.compile(parallel.DistributedOptimizer(keras.optimizers.SGD(0.4)), loss="mse")
    rates = []
    noted = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: rates.append(float(np.asarray(model.optimizer.learning_rate)))
    )
    grows = parallel.callbacks.LearningRateWarmupCallback(0.4, warmup_epochs=2)
    later = parallel.callbacks.LearningRateScheduleCallback(0.4, multiplier=lambda epoch: 0.1**epoch, start_epoch=3)
    rows = tf.data.Dataset.from_tensors((tf.ones([4, 3]), tf.ones([4, 1]))).repeat(2)
    model.fit(rows, epochs=4, verbose=0, callbacks=[grows, later, noted])
    return rates


def saved(task, path):
    """A Keras 3 model that was trained so is saved and loaded; the optimizer's class, and whether it still exchanges."""
    parallel = join(task)
    keras = _keras("keras")
    model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(1)])
    model.compile(parallel.DistributedOptimizer(keras.optimizers.SGD(0.5)), loss="mse")
    model.fit(tf.ones([4, 3]), tf.ones([4, 1]), verbose=0)
    mine = f"{path}.{parallel.rank()}.keras"
    model.save(mine)
    loaded = keras.models.load_model(mine)
    return [type(loaded.optimizer) is keras.optimizers.SGD, float(loaded.optimizer.learning_rate)]


def loop(task, alone=False, sparse_as_dense=False, compression="none"):
    """A custom loop with a table that is looked up, and a variable without a gradient; its variables afterwards."""
    parallel = join(task)
    rank, workers = parallel.rank(), parallel.size()
    table = tf.Variable(tf.random.stateless_normal([50, _WIDTH], [1, 1]))
    weight = tf.Variable(tf.random.stateless_normal([_WIDTH, 200], [1, 2 if alone else 2 + rank]) * 0.1)
    unused = tf.Variable(1.0)
    if not alone:
        parallel.broadcast_variables([table, weight])
    looked_up = tf.random.stateless_uniform([5, workers, _ROWS], [5, 6], 0, 50, tf.int32)

    @tf.function
    def step(rows):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(tf.gather(table, rows) @ weight - 0.5))
        if not alone:
            chosen = getattr(parallel.Compression, compression)
            tape = parallel.DistributedGradientTape(tape, compression=chosen, sparse_as_dense=sparse_as_dense)
        gradients = tape.gradient(loss, [table, weight, unused])
        assert gradients[2] is None
        if isinstance(gradients[0], tf.IndexedSlices):
            table.scatter_sub(tf.IndexedSlices(0.1 * gradients[0].values, gradients[0].indices))
        else:
            table.assign_sub(0.1 * gradients[0])
        weight.assign_sub(0.1 * gradients[1])
        return loss

    for number in range(5):
        step(tf.reshape(looked_up[number] if alone else looked_up[number, rank], [-1]))
    return [table.numpy().tolist(), weight.numpy().tolist()]


def gradient(task):
    """The gradient of a sum of all workers' tensors, and in eager mode."""
    parallel = join(task)
    variable = tf.Variable(tf.ones([100]))
    with parallel.DistributedGradientTape(tf.GradientTape(), op=parallel.Max) as tape:
        loss = tf.reduce_sum(variable * (parallel.rank() + 1.0))
    first = tape.gradient(loss, variable)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(parallel.allreduce(variable, parallel.Sum)) * (parallel.rank() + 1.0)
    second = tape.gradient(loss, variable)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(parallel.allreduce(variable, parallel.Max))
    return [first.numpy().tolist(), second.numpy().tolist(), _said(lambda: tape.gradient(loss, variable))]


def _said(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def mistakes(task):
    """What is said to each mistake that one worker can make, or all together."""
    import tfsched

    parallel = join(task)
    keras = _keras("keras")
    rank = parallel.rank()

    def compiled():
        model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(1)])
        model.compile(parallel.DistributedOptimizer(keras.optimizers.SGD()), loss="mse", jit_compile=True)
        model.fit(tf.ones([4, 3]), tf.ones([4, 1]), verbose=0)

    def scaled():
        model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(1)])
        inner = parallel.DistributedOptimizer(keras.optimizers.SGD())
        model.compile(keras.optimizers.LossScaleOptimizer(inner), loss="mse")
        model.fit(tf.ones([4, 3]), tf.ones([4, 1]), verbose=0)

    def in_graph():
        with tf.Graph().as_default():
            parallel.allreduce(tf.ones([3]))

    def scheduled():
        model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)), loss="mse")
        model.fit(
            tf.ones([4, 3]), tf.ones([4, 1]), verbose=0, callbacks=[parallel.callbacks.LearningRateWarmupCallback(0.1)]
        )

    calls = {
        "xla": lambda: tf.function(lambda: parallel.allreduce(tf.ones([3])), jit_compile=True)(),
        "compiled": compiled,
        "scaled": scaled,
        "scheduled": scheduled,
        "graph": in_graph,
        "op": lambda: parallel.allreduce(tf.ones([3]), "mean"),
        "type": lambda: parallel.allreduce(tf.constant(["a"])),
        "average": lambda: parallel.allreduce(tf.constant([1])),
        "root": lambda: parallel.broadcast(tf.ones([3]), 2),
        "strings": lambda: parallel.allgather(tf.constant(["a"])),
        "columns": lambda: parallel.allgather(tf.ones([2, 3 + rank])),
        "types": lambda: parallel.allgather(tf.ones([2], "float32" if rank else "float64")),
        "shapes": lambda: parallel.broadcast(tf.ones([2 + rank])),
        "shapes_in_function": lambda: tf.function(lambda: parallel.broadcast(tf.ones([2 + rank])))(),
        "variables": lambda: parallel.broadcast_variables([tf.Variable(tf.ones([2]))] * (1 + rank)),
        "optimizer": lambda: parallel.DistributedOptimizer(3),
        "twice": lambda: parallel.DistributedOptimizer(parallel.DistributedOptimizer(keras.optimizers.SGD())),
        "object": lambda: tf.function(lambda: parallel.broadcast_object(1))(),
        "options": lambda: parallel.init({"policy": "p3"}),
        "compression": lambda: parallel.DistributedGradientTape(tf.GradientTape(), compression=tf.int8),
        "sparse": lambda: parallel.DistributedGradientTape(tf.GradientTape(), parallel.Max)._settings.combine(
            [tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]), tf.constant([3, 2]))]
        ),
        "elsewhere": lambda: _elsewhere(parallel),
    }
    said = {name: _said(call) for name, call in calls.items()}
    # And nothing is broken by them.
    parallel.shutdown()
    assert not parallel.is_initialized()
    said["without"] = _said(parallel.size)
    parallel.init()
    assert tfsched.stats()["all_reduces_failed"] == 0
    return said, parallel.allreduce(tf.ones([1]), parallel.Sum).numpy().tolist()


def _elsewhere(parallel):
    before = os.environ["TF_CONFIG"]
    try:
        os.environ["TF_CONFIG"] = before.replace("127.0.0.1", "127.0.0.2")
        parallel.shutdown()
        parallel.init()
    finally:
        os.environ["TF_CONFIG"] = before
        parallel.init()


def too_late(task):
    """TensorFlow has computed something before init."""
    tf.constant(1) + 1
    return _said(lambda: join(task))


def occupied(task):
    """Another process has this worker's port."""
    address = task.spec["cluster"]["worker"][task.spec["index"]]
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        return _said(lambda: join(task))


def one_step(task, elements):
    """An all-reduce, some of whose bytes may still be on their way when it returns."""
    parallel = join(task)
    return parallel.allreduce(tf.ones([elements]), parallel.Sum)[-2:].numpy().tolist()


def again(task, calls, elements):
    """All-reduces one tensor again and again.

    Returns the bytes of this worker's largest message in the last call, and whether all sums were right.
    """
    import tfsched

    parallel = join(task)
    rank, size = parallel.rank(), parallel.size()
    right = True
    for _ in range(calls):
        tfsched.transfers(clear=True)
        total = parallel.allreduce(tf.range(elements, dtype=tf.float32) + rank, parallel.Sum)
        right = right and bool(tf.reduce_all(total == size * tf.range(elements, dtype=tf.float32) + sum(range(size))))
    return [max(row["bytes"] for row in tfsched.transfers() if row["rank"] >= 0), right]


def alone(task):
    """Without a cluster."""
    import tfsched.parallel as parallel

    parallel.init()
    tensor = tf.constant([1.0, 2.0])
    variable = tf.Variable(tensor)
    parallel.broadcast_variables([variable])
    parallel.barrier()
    with parallel.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(variable * 3)
    made = [
        parallel.allreduce(tensor),
        parallel.allgather(tensor),
        parallel.broadcast(tensor),
        tape.gradient(loss, variable),
    ]
    sizes = [parallel.rank(), parallel.size(), parallel.local_rank(), parallel.local_size()]
    return [one.numpy().tolist() for one in made], sizes, parallel.broadcast_object("a")


def begin(task, pause_s=0.02):
    """Trains in the background until a step fails."""
    parallel = join(task)
    variable = tf.Variable(tf.ones([20_000]))

    @tf.function
    def step():
        with parallel.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(tf.square(variable))
        variable.assign_sub(0.01 * tape.gradient(loss, variable))

    state = task.state["background"] = {"steps": 0, "error": None}
    pause = threading.Event()

    def run():
        try:
            while not pause.wait(pause_s):
                step()
                state["steps"] += 1
        except Exception as error:
            state["error"] = {"kind": type(error).__name__, "message": str(error)}

    threading.Thread(target=run, daemon=True).start()


def progress(task):
    """Steps so far, and the error of the first that failed."""
    return task.state["background"]
