"""Runs programs of workers that all-reduce (mirrored_programs.py): each worker runs the same one, and says what it saw."""

import contextlib
import itertools
import os
import time

import tensorflow as tf
from scenarios import mirrored

from tests.fuzz import graphs

_EXACT = 2.0**16  # three workers' gradients are whole multiples of its inverse: their sums are exact in any order


class _TwoRules:
    """One optimizer for the first half of the variables, another one for the rest."""

    def __init__(self):
        self.rules = [mirrored._rule("sgd"), mirrored._rule("adam")]

    def _halves(self, items):
        items = list(items)
        return items[: len(items) // 2], items[len(items) // 2 :]

    def build(self, variables):
        for rule, mine in zip(self.rules, self._halves(variables), strict=True):
            rule.build(mine)

    def apply_gradients(self, pairs):
        for rule, mine in zip(self.rules, self._halves(pairs), strict=True):
            rule.apply_gradients(mine)

    @property
    def variables(self):
        return [one for rule in self.rules for one in rule.variables]


def _rule(name):
    """The optimizer of a drawn name."""
    if name == "two":
        return _TwoRules()
    import tf_keras

    optimizers = tf_keras.optimizers
    more = {
        "moving averages": lambda: optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9),
        "adamw": lambda: optimizers.AdamW(0.01, weight_decay=0.01),
        "clip norms": lambda: optimizers.SGD(0.1, clipnorm=0.01),
        "loss scale": lambda: tf_keras.mixed_precision.LossScaleOptimizer(
            optimizers.Adam(0.01), initial_scale=1024, dynamic_growth_steps=3
        ),
    }
    return more[name]() if name in more else mirrored._rule(name)


class _Chain(tf.Module):
    """Layers of drawn widths, each with a bias: tensors that are exchanged alone, and small ones that are joined."""

    def __init__(self, widths):
        super().__init__()
        self.all = []
        for layer, (before, width) in enumerate(itertools.pairwise(widths)):
            weight = tf.random.stateless_normal([before, width], [layer, 3]) * before**-0.5
            self.all += [tf.Variable(weight), tf.Variable(tf.zeros([width]))]

    def loss(self, batch):
        hidden = batch
        for weight, bias in zip(self.all[::2], self.all[1::2], strict=True):
            hidden = tf.tanh(hidden @ weight + bias)
        return tf.reduce_mean(tf.square(hidden - 0.5))


class _Worker:
    """What lives through a program: the model, its functions, the options in force."""

    def __init__(self, task, program, directory, stock):
        self.index, self.directory, self.stock = task.spec["index"], directory, stock
        os.makedirs(directory, exist_ok=True)
        drawn = program["model"]
        # Packs are the strategy's, and that is made once: another communication goes along with each all-reduce.
        self.strategy = mirrored.join(task)
        self.communication = tf.distribute.experimental.CommunicationOptions(bytes_per_pack=drawn["bytes_per_pack"])
        with self.strategy.scope():
            self.chain, self.rule = _Chain(drawn["widths"]), _rule(drawn["rule"])
            self.rule.build(self.chain.all)
        self.width, self.number = drawn["widths"][0], 0
        self.exact, self.scaled = program["workers"] > 2, drawn["rule"] == "loss scale"
        self.make_step(drawn["clip"], drawn["shows_norm"])
        self.evaluated = tf.function(self.read)
        self.halved = tf.function(self.halve)

    def make_step(self, clip, shows_norm):
        context = tf.distribute.get_replica_context

        @tf.function
        def step(number):
            def replica(number):
                batch = tf.random.stateless_normal([4, self.width], [number, 7 + self.index])
                with tf.GradientTape() as tape:
                    loss = self.chain.loss(batch)
                    target = self.rule.get_scaled_loss(loss) if self.scaled else loss
                gradients, shown = tape.gradient(target, self.chain.all), [loss]
                if self.scaled:
                    gradients = self.rule.get_unscaled_gradients(gradients)
                if self.exact:
                    gradients = [tf.round(one * _EXACT) / _EXACT for one in gradients]
                if not clip and not shows_norm:
                    self.rule.apply_gradients(list(zip(gradients, self.chain.all, strict=True)))
                    return shown
                gradients = context().all_reduce("sum", gradients, options=self.communication)
                if clip:
                    gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
                if shows_norm:
                    shown.append(tf.linalg.global_norm(gradients[:1]))
                for variable, gradient in zip(self.chain.all, gradients, strict=True):
                    variable.assign_sub(0.1 * gradient)
                return shown

            return self.strategy.run(replica, args=(number,))

        self.made_step = step

    def read(self):
        return [tf.identity(variable) for variable in self.chain.all]

    def halve(self):
        for variable in self.chain.all:
            variable.assign(variable * 0.5)

    @property
    def variables(self):
        return [*self.chain.all, *self.rule.variables]

    def seen(self, values):
        return {str(number): graphs.digest(value.numpy()) for number, value in enumerate(values)}

    def step(self, count):
        shown = []
        for _ in range(count):
            shown += [self.seen(self.made_step(tf.constant(self.number)))]
            self.number += 1
        return {str(number): one for number, one in enumerate(shown)}

    def values(self):
        return self.seen(self.variables)

    def eager(self):
        """The last to be updated first."""
        return self.seen([tf.identity(variable) for variable in reversed(self.variables)])

    def one(self, which):
        return self.seen([self.variables[which % len(self.variables)]])

    def evaluate(self):
        return self.seen(self.evaluated())

    def new_function(self):
        return self.seen(tf.function(self.read)())

    def checkpoint(self):
        path = tf.train.Checkpoint(all=self.variables).write(f"{self.directory}/looked")
        reader = tf.train.load_checkpoint(path)
        names = [f"all/{number}/.ATTRIBUTES/VARIABLE_VALUE" for number in range(len(self.variables))]
        return {name: graphs.digest(reader.get_tensor(name)) for name in names}

    def save(self, name):
        tf.train.Checkpoint(all=self.variables).write(f"{self.directory}/saved{name}")

    def restore(self, name):
        tf.train.Checkpoint(all=self.variables).read(f"{self.directory}/saved{name}").assert_consumed()

    def assign(self, which, value):
        variable = self.chain.all[which % len(self.chain.all)]
        variable.assign(tf.fill(variable.shape, 0.1 * value))

    def assign_in_function(self):
        self.halved()

    def drain(self):
        if not self.stock:
            import tfsched

            tfsched.drain()

    def options(self, drawn):
        if self.stock:
            return
        import tfsched

        mine = drawn[self.index]
        if mine is None:
            tfsched.disable()
        else:
            tfsched.enable(tfsched.Options(**mine))

    def block(self, drawn):
        """A step under other options, which end with it."""
        other = contextlib.nullcontext()
        if not self.stock and drawn[self.index] is not None:
            import tfsched

            other = tfsched.options(tfsched.Options(**drawn[self.index]))
        with other:
            return self.step(1)

    def late(self, who, how_s):
        if self.index == who:
            time.sleep(how_s)

    def configure(self, change):
        if not self.stock:
            import tfsched

            tfsched.configure(**change)


def run(task, program, directory, stock, begin=0):
    """What this worker saw with each action from ``begin`` on, and the action that is the runner's part, or the end."""
    worker = _Worker(task, program, directory, stock)
    seen, actions = [], program["actions"]
    for at in range(begin, len(actions)):
        name, *arguments = actions[at]
        if name == "lose":
            task.state["worker"] = worker
            return {"seen": seen, "at": at}
        task.state["doing"] = f"action {at}: {name} {arguments}"
        seen.append(getattr(worker, name)(*arguments))
    if not stock:
        import tfsched

        tfsched.disable()
        tfsched.configure(policy="graph", credit_bytes=-1, rate_bps=0)
    return {"seen": seen, "at": len(actions)}


def step_without_the_lost(task):
    """Another worker has been lost; the class of the error that this one's next steps have within a few, None if none."""
    worker = task.state["worker"]
    try:
        worker.step(3)
        worker.values()
    except tf.errors.OpError as error:
        return type(error).__name__
    return None
