"""The graphs that programs train; runs inside of task processes."""

import hashlib
import json
import random

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1
_BATCH = 4

OPTIMIZERS = {
    "sgd": lambda rate: v1.train.GradientDescentOptimizer(rate),
    "momentum": lambda rate: v1.train.MomentumOptimizer(rate, 0.9),
    "adam": lambda rate: v1.train.AdamOptimizer(rate * 0.1),
    "adagrad": lambda rate: v1.train.AdagradOptimizer(rate),
    "rmsprop": lambda rate: v1.train.RMSPropOptimizer(rate * 0.01, momentum=0.5),
    "ftrl": lambda rate: v1.train.FtrlOptimizer(rate, l1_regularization_strength=0.001),
}


def digest(value):
    """A short name for an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]


def with_plan(graph, options):
    """Options with a plan in place of the number by which its groups and pieces are drawn."""
    if options is None or "groups" not in options:
        return options
    from tfsched.graph_ops import is_update
    from tfsched.ordering import Plan

    tensors = []
    for op in graph.get_operations():
        if op.type == "ReadVariableOp" or op.name.endswith("/read"):
            tensors.append(op.outputs[0])
        elif is_update(op.type):
            tensors += [_behind_identities(one) for one in op.inputs[1:] if one.dtype != tf.resource]
    draw = random.Random(options["groups"])
    by_name = {tensor.name: tensor for tensor in tensors}
    names = list(by_name)
    draw.shuffle(names)
    groups = []
    while names:
        size = draw.choice((1, 2, 3, 8))
        groups.append(tuple(names[:size]))
        names = names[size:]
    priorities = {name: float(place) for place, group in enumerate(groups) for name in group}
    pieces = {name: cut for group in groups if len(group) == 1 for name in group if (cut := _pieces(draw, by_name[name]))}
    plan = json.dumps(Plan("drawn", priorities, groups=groups, pieces=pieces).to_json())
    return {**{key: value for key, value in options.items() if key != "groups"}, "plan": plan}


def _pieces(draw, tensor):
    """Bytes and priority of random pieces of what is large enough; none for every other one."""
    if not tensor.shape.is_fully_defined() or tensor.dtype.is_bool or draw.random() < 0.5:
        return []
    left, sizes = tensor.shape.num_elements() * tensor.dtype.base_dtype.size, []
    while left >= 8192 and len(sizes) < 20:
        sizes.append(draw.randrange(4096, left - 4096 + 1) // 64 * 64)
        left -= sizes[-1]
    return [(size, draw.random() * 20) for size in [*sizes, left]] if sizes else []


def _behind_identities(tensor):
    while tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


class Chain:
    """A chain of layers on the parameter servers, trained by towers in one graph; its variables begin with ``prefix``."""

    def __init__(self, task, prefix, ps, widths, optimizer, some, towers, decay, clip):
        self.prefix, self.towers, self.widths = prefix, towers, widths
        self.graph = tf.Graph()
        device = v1.train.replica_device_setter(ps_tasks=ps, worker_device="/job:worker/task:0")
        with self.graph.as_default(), v1.device(device):
            v1.set_random_seed(1)
            with v1.variable_scope(prefix):
                self.step = v1.train.get_or_create_global_step()
                self._build(optimizer, some, decay, clip)
            self.all = v1.global_variables()
            self.init = v1.global_variables_initializer()
            self.saver = v1.train.Saver(self.all, max_to_keep=None)
            self.destroy = [tf.raw_ops.DestroyResourceOp(resource=variable.handle) for variable in self.all]

    def _build(self, optimizer, some, decay, clip):
        self.batch = v1.placeholder(tf.float32, [self.towers, _BATCH, self.widths[0]], name="batch")
        variables = []
        for layer, shape in enumerate(zip(self.widths, self.widths[1:], strict=False)):
            start = tf.random.stateless_normal(shape, seed=[layer, 7], stddev=shape[0] ** -0.5)
            variables.append(v1.get_variable(f"w{layer}", initializer=start, use_resource=True))
            variables.append(v1.get_variable(f"b{layer}", [shape[1]], initializer=v1.zeros_initializer(), use_resource=True))
        self.variables, losses, towers = variables, [], []
        for tower in range(self.towers):
            with v1.device(f"/job:worker/task:{tower}"), v1.name_scope(f"tower{tower}"):
                hidden = self.batch[tower]
                for weight, bias in zip(variables[::2], variables[1::2], strict=True):
                    hidden = tf.tanh(hidden @ weight.read_value() + bias.read_value())
                losses.append(tf.reduce_mean(tf.square(hidden - 0.5)))
                towers.append(tf.gradients(losses[-1], variables))
        gradients = towers[0]
        if self.towers > 1:
            gradients = []
            for each, variable in zip(zip(*towers, strict=True), variables, strict=True):
                with v1.device(variable.device):
                    gradients.append(tf.add_n(each) / self.towers)
        if clip:
            gradients, _ = tf.clip_by_global_norm(gradients, 0.05)
        rate = v1.train.exponential_decay(0.3, self.step, 10, 0.9) if decay else 0.3
        self.train = OPTIMIZERS[optimizer](rate).apply_gradients(
            zip(gradients, variables, strict=True), global_step=self.step
        )
        # Another kind of step, of every other variable, which the batch has no part in.
        mine = variables[::2]
        decayed = [0.01 * variable.read_value() for variable in mine]
        self.train_some = OPTIMIZERS[some](0.1).apply_gradients(zip(decayed, mine, strict=True))
        self.loss = tf.add_n(losses)
        self.given = v1.placeholder(tf.float32, [])
        self.reads = [variable.read_value() for variable in variables]
        self.assigns = [
            variable.assign(0.1 * self.given + 0.5 * variable.read_value(), read_value=False)
            if number % 2
            else variable.assign(tf.fill(variable.shape, 0.01 * self.given), read_value=False)
            for number, variable in enumerate(variables)
        ]

    def feed(self, number):
        """The batch of a step, the same for everybody."""
        draw = np.random.RandomState(number)
        return {self.batch: draw.randn(self.towers, _BATCH, self.widths[0]).astype(np.float32)}

    def plain(self, name):
        """A variable's name without what is this program's."""
        return name.replace(self.prefix + "/", "")

    def values(self, session):
        """Digests of all variables by name, read by one run."""
        read = session.run({variable.op.name: variable for variable in self.all})
        return {self.plain(name): digest(value) for name, value in read.items()}

    def saved(self, path):
        """Digests of a checkpoint's arrays by name."""
        reader = v1.train.NewCheckpointReader(path)
        return {self.plain(name): digest(reader.get_tensor(name)) for name in reader.get_variable_to_shape_map()}
