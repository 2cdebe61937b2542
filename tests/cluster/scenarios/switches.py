"""What tfsched.enable, options and function reach, counted as transfers that the parameter server has ordered."""

import threading

import tensorflow as tf

from . import strategy as strategies

WORKER = "/job:worker/replica:0/task:0"
PS = "/job:ps/task:0"


class _Ordered:
    """How many transfers the parameter server has ordered since the last question."""

    def __init__(self):
        self._before = 0
        self()

    def __call__(self):
        import tfsched

        now = tfsched.stats(PS)["tasks"]
        before, self._before = self._before, now
        return now - before


class _Loss:
    """A model's loss as a method, decorated with options of its own."""

    def __init__(self, model, decorate):
        self.model = model
        type(self).loss = decorate(type(self)._loss)

    def _loss(self, batch):
        return self.model.loss(batch)


def _batch(rows=4):
    return tf.ones([rows, 48])


def reach(task, enable_first):
    """What was ordered by each of several ways to run one function; names say which."""
    import tfsched

    seen = {}
    if enable_first:
        tfsched.enable()
    strategy, coordinator = strategies.join(task)
    with strategy.scope():
        model = strategies.Model()
    ordered = _Ordered()

    def schedule(fn, rows=4):
        coordinator.schedule(fn, args=(_batch(rows),))
        coordinator.join()

    def direct(fn):
        with tf.device(WORKER):
            return fn(_batch())

    plain = tf.function(model.loss)
    if enable_first:
        schedule(plain)
        seen["enabled before the context"] = ordered()
        return seen
    schedule(plain)
    seen["not enabled"] = ordered()
    tfsched.enable()
    schedule(plain)
    seen["enabled, on a thread that had called before"] = ordered()
    schedule(plain, rows=5)
    seen["retraced"] = ordered()
    direct(plain)
    seen["on the main thread"] = ordered()
    with tfsched.options(ordering="none"):
        direct(plain)
        seen["none, within enabled"] = ordered()
        with tfsched.options(ordering="layer"):
            direct(plain)
            seen["layer, within none"] = ordered()
        direct(plain)
        seen["none again"] = ordered()
    outer = tf.function(lambda batch: plain(batch) * 2.0)
    direct(outer)
    seen["a function in a function"] = ordered()
    tfsched.disable()
    schedule(plain)
    direct(plain)
    seen["disabled"] = ordered()
    with tfsched.options():
        other = threading.Thread(target=direct, args=(plain,))
        other.start()
        other.join(60)
        seen["another thread, beside a block"] = ordered()
        direct(plain)
        seen["in a block"] = ordered()
    schedule(tfsched.function(model.loss))
    seen["decorated, scheduled"] = ordered()
    direct(tfsched.function(options=tfsched.Options(ordering="layer"))(model.loss))
    seen["decorated, called"] = ordered()
    owner = _Loss(model, tfsched.function)
    schedule(owner.loss)
    direct(owner.loss)
    seen["a decorated method, twice"] = ordered()
    with strategy.scope():
        single = tfsched.function(model.loss).get_concrete_function(tf.TensorSpec([4, 48]))
    schedule(single)
    seen["decorated, concrete"] = ordered()
    return seen


def untouched(task):
    """A local function's graph, and what the user configured, with tfsched enabled and without."""
    from tensorflow.python.eager import context

    import tfsched

    def trace():
        inner = tf.function(lambda x: tf.tanh(x) + 1.0)
        outer = tf.function(lambda x: tf.reduce_sum(inner(x) * 2.0))
        made = outer.get_concrete_function(tf.TensorSpec([3]))
        value = outer(tf.ones([3])).numpy()
        return made.graph.as_graph_def(), float(value)

    def comparable(graph):
        """Without the counters in functions' names."""
        for function in graph.library.function:
            function.signature.name = function.signature.name.rstrip("0123456789")
        for node in graph.node:
            if "f" in node.attr:
                node.attr["f"].func.name = node.attr["f"].func.name.rstrip("0123456789")
        return graph.SerializeToString(deterministic=True).hex()

    tf.config.optimizer.set_experimental_options({"constant_folding": True})
    stock_graph, stock_value = trace()
    tf.config.optimizer.set_experimental_options({"constant_folding": False})
    tfsched.enable(tfsched.Options(policy="bytescheduler"))
    context.context().function_call_options = None  # as TensorFlow's own setters leave it
    tf.config.optimizer.set_experimental_options({"constant_folding": True})
    graph, value = trace()
    names = [one.name for one in context.context().config.graph_options.rewrite_options.custom_optimizers]
    config = tf.compat.v1.ConfigProto.FromString(context.context().function_call_options.config_proto_serialized)
    names += [one.name for one in config.graph_options.rewrite_options.custom_optimizers]
    with tf.experimental.function_executor_type("SINGLE_THREADED_EXECUTOR"):
        in_another_executor = float(tf.function(lambda x: tf.reduce_sum(x))(tf.ones([3])))
    tfsched.disable()
    return {
        "same graph": comparable(stock_graph) == comparable(graph),
        "same value": stock_value == value,
        "left in the user's config": names,
        "folding": config.graph_options.rewrite_options.constant_folding,
        "in another executor": in_another_executor,
        "outstanding": tfsched.stats()["background_outstanding"],
    }


def mistakes(task):
    """What users get wrong -> the message."""
    import tfsched

    strategies.join(task)
    tries = {
        "enable": lambda: tfsched.enable("tio"),
        "options": lambda: tfsched.options(policies="p3"),
        "function": lambda: tfsched.function(lambda: 1, options={}),
        "resolver": lambda: tfsched.cluster_resolver({"ps": ["a:1"]}, "worker", 0),
        "task_id": lambda: tfsched.cluster_resolver({"ps": ["a:1"]}, "ps", 3),
        "stats": lambda: tfsched.stats("/job:ps/task:7"),
        "drain": lambda: tfsched.drain(timeout_s=0),
    }
    said = {}
    for name, attempt in tries.items():
        try:
            attempt()
            said[name] = "nothing"
        except tfsched.TfschedError as error:
            said[name] = str(error)
    return said
