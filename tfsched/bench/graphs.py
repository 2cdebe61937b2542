"""Builds the graphs of a run: the step itself, computing alone and communicating alone."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from tfsched import placement
from tfsched.bench.models import Model, Network

tf1 = tf.compat.v1

# Small enough that thousands of steps on random data never reach NaN or denormal numbers, which
# would change the speed of the arithmetic.
LEARNING_RATE = 1e-4

Described = tuple[tuple[int, ...], tf.DType, str]
"""A variable's shape, type and device."""


def bytes_by_device(variables: list[Described]) -> dict[str, int]:
    """Bytes of the variables on each device."""
    sizes: dict[str, int] = {}
    for shape, kind, device in variables:
        sizes[device] = sizes.get(device, 0) + math.prod(shape) * kind.size
    return sizes


def to_json(variables: list[Described]) -> list[Any]:
    """The variables as JSON values, for a request."""
    return [(list(shape), kind.name, device) for shape, kind, device in variables]


def from_json(content: list[Any]) -> list[Described]:
    """The variables that `to_json` was given."""
    return [(tuple(shape), tf.as_dtype(kind), device) for shape, kind, device in content]


@dataclasses.dataclass
class Built:
    """A graph ready to run.

    Attributes:
        graph: the graph.
        fetches: named things to run; a value may be nested, `finish` holds one timestamp a worker.
        initializer: sets all variables.
        variable_bytes: size of the model's variables (one copy).
        variables: (shape, type, device) of each, for `build_communication_alone`.
        batch: placeholder of the batch size where it is chosen at run time.
    """

    graph: tf.Graph
    fetches: dict[str, Any]
    initializer: tf.Operation
    variable_bytes: int
    variables: list[Described]
    batch: tf.Tensor | None = None

    def bytes_by_device(self) -> dict[str, int]:
        """Bytes of the variables on each device, e.g. {"/job:ps/task:0": 1024}."""
        return bytes_by_device(self.variables)


@dataclasses.dataclass
class _Tower:
    """What one worker contributes to a step."""

    loss: tf.Tensor
    gradients: list[tf.Tensor]
    finish: tf.Tensor


def _worker(index: int) -> str:
    return f"/job:worker/task:{index}"


@contextlib.contextmanager
def _new_graph(seed: int) -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        tf1.set_random_seed(seed)
        yield graph


def _make_network(model: Model, training: bool, device: str | Callable[..., str]) -> Network:
    with tf1.device(device):
        try:
            import tf_keras
        except ImportError:
            pass  # a model that needs it says so
        else:
            # Keras calls each layer once on a placeholder while it builds the model; with the
            # phase fixed, that copy has no conditionals. It is pruned from every step.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecated, but nothing replaces it in a graph
                tf_keras.backend.set_learning_phase(int(training))
        return model.make()


def in_parts(network: Network) -> Network:
    """The network with its variables' shards in place of those that have some."""
    return dataclasses.replace(network, variables=_parts(network.variables), trainable=_parts(network.trainable))


def _parts(variables: list[Any]) -> list[Any]:
    return [part for variable in variables for part in getattr(variable, "variables", [variable])]


def _tower(model: Model, network: Network, batch: int | tf.Tensor, training: bool, device: str) -> tuple[_Tower, tf.Tensor]:
    """Adds one worker's operations; `finish` is its clock (s) once its own part is done."""
    with tf1.device(device):
        inputs = tf.random.uniform(tf.stack([batch, *model.input_shape]), name="inputs")
        inputs.set_shape([batch if isinstance(batch, int) else None, *model.input_shape])
        loss = network.loss(inputs, training)
        gradients = tf1.gradients(loss, network.trainable) if training else []
        # Without an identity on the worker, a loss that is fetched by a chief elsewhere would
        # order the timestamp after a transfer.
        with tf.control_dependencies([loss, *gradients]):
            finish = tf.timestamp(name="finish")
    return _Tower(loss, gradients, finish), inputs


def _describe(network: Network) -> tuple[int, list[Described]]:
    described = [
        (tuple(variable.shape.as_list()), variable.dtype.base_dtype, variable.device) for variable in network.variables
    ]
    size = sum(
        variable.shape.num_elements() * kind.size
        for variable, (_, kind, _) in zip(network.variables, described, strict=True)
    )
    return size, described


def build_step(model: Model, phase: str, batch: int, ps: int, workers: int, seed: int = 0, balanced: bool = False) -> Built:
    """One synchronous step: variables on the parameter servers, one tower a worker.

    Variables go round robin over the parameter servers, or are cut and balanced over them. Each tower has its own reads, so
    each worker pulls each variable over its own link. In phase train the parameter servers average the workers' gradients
    and apply SGD.
    """
    training = phase == "train"
    with _new_graph(seed) as graph:
        make_setter = placement.balanced_device_setter if balanced else tf1.train.replica_device_setter
        setter = make_setter(ps_tasks=ps, ps_device="/job:ps", worker_device=_worker(0))
        with placement.sharded_variables(ps) if balanced else contextlib.nullcontext():
            network = in_parts(_make_network(model, training, setter))
        towers: list[_Tower] = []
        updates: list[tf.Operation] = []
        for index in range(workers):
            with tf1.name_scope(f"worker{index}"):
                tower, inputs = _tower(model, network, batch, training, _worker(index))
            towers.append(tower)
            if training and index == 0:  # one worker keeps the moving averages, as is customary
                updates = network.updates(inputs)
        step: dict[str, Any] = {
            "losses": [tower.loss for tower in towers],
            "finish": [tower.finish for tower in towers],
        }
        if training:
            step["train"] = tf.group(_apply_average(network.trainable, _gradients(towers)), *updates)
        size, variables = _describe(network)
        initializer = tf1.variables_initializer(network.variables)
    return Built(graph, {"step": step}, initializer, size, variables)


def _gradients(towers: list[_Tower]) -> list[tuple[tf.Tensor, ...]]:
    """By variable, one a worker."""
    return list(zip(*(tower.gradients for tower in towers), strict=True))


def _apply_average(variables: Sequence[tf.Variable], gradients_of: Sequence[Sequence[tf.Tensor]]) -> tf.Operation:
    """Applies to each variable the average of its gradients, one a worker."""
    averaged = []
    for variable, gradients in zip(variables, gradients_of, strict=True):
        if len(gradients) > 1:
            with tf1.device(variable.device):
                averaged.append(tf.add_n(gradients) / len(gradients))
        else:
            averaged.append(gradients[0])
    optimizer = tf1.train.GradientDescentOptimizer(LEARNING_RATE)
    return optimizer.apply_gradients(zip(averaged, variables, strict=True))


def build_compute_alone(model: Model, phase: str, batch: int | None, workers: int, seed: int = 0) -> Built:
    """The same step without a transfer: each worker has its own copy of the variables.

    All workers compute at once, since those of one machine share its cores in a real step too.
    Without `batch`, its size is fed at run time through `Built.batch`.
    """
    training = phase == "train"
    with _new_graph(seed) as graph:
        size_tensor = None
        if batch is None:
            with tf1.device(_worker(0)):
                size_tensor = tf1.placeholder(tf.int32, [], name="batch")
        step: dict[str, Any] = {"losses": [], "finish": [], "train": []}
        variables: list[tf.Variable] = []
        network = None
        for index in range(workers):
            with tf1.variable_scope(f"worker{index}"), tf1.name_scope(f"alone{index}/"):
                network = _make_network(model, training, _worker(index))
                tower, inputs = _tower(
                    model,
                    network,
                    batch if size_tensor is None else size_tensor,
                    training,
                    _worker(index),
                )
                variables += network.variables
                step["losses"].append(tower.loss)
                step["finish"].append(tower.finish)
                if training:
                    with tf1.device(_worker(index)):
                        step["train"].append(_apply_average(network.trainable, _gradients([tower])))
                    step["train"].extend(network.updates(inputs) if index == 0 else [])
        assert network is not None
        size, described = _describe(network)
        initializer = tf1.variables_initializer(variables)
    return Built(graph, {"step": step}, initializer, size, described, size_tensor)


def build_exchange(variables: list[Described], workers: int) -> Built:
    """A training step without its arithmetic: values come back to their servers as gradients, which apply their average."""
    with _new_graph(0) as graph:
        stored, updated = [], []
        for index, (shape, kind, device) in enumerate(variables):
            with tf1.device(device):
                zeros = tf1.zeros_initializer()
                variable = tf1.get_variable(f"exchanged{index}", shape, kind, zeros, use_resource=True)
            gradients = []
            for worker in range(workers):
                with tf1.device(_worker(worker)):
                    gradients.append(tf.identity(variable.read_value()))
            stored.append(variable)
            updated.append(gradients)
        apply = _apply_average(stored, updated)
        size = sum(tf.TensorShape(shape).num_elements() * kind.size for shape, kind, _ in variables)
        return Built(graph, {"step": apply}, tf1.variables_initializer(stored), size, variables)


def build_communication_alone(variables: list[Described], workers: int) -> Built:
    """The step's transfers without its arithmetic.

    `pull` moves every variable to every worker; `push` moves as many bytes back, as gradients
    would; `both` does both at once. Run it with Grappler and the other graph optimizers off: nothing uses the values.
    """
    with _new_graph(0) as graph:
        stored = []
        for index, (shape, kind, device) in enumerate(variables):
            with tf1.device(device):
                stored.append(
                    tf1.get_variable(
                        f"alone{index}",
                        shape,
                        kind,
                        tf1.zeros_initializer(),
                        use_resource=True,
                    )
                )
        pulled, pushed = [], []
        for worker in range(workers):
            for (shape, kind, device), variable in zip(variables, stored, strict=True):
                with tf1.device(device):
                    value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=kind)
                with tf1.device(_worker(worker)):
                    pulled.append(tf.identity(value).op)
                    gradient = tf.raw_ops.Fill(dims=tf.constant(shape, tf.int32), value=tf.zeros([], kind))
                with tf1.device(device):
                    pushed.append(tf.identity(gradient).op)
        fetches = {"pull": tf.group(*pulled), "push": tf.group(*pushed), "both": tf.group(*pulled, *pushed)}
        size = sum(tf.TensorShape(shape).num_elements() * kind.size for shape, kind, _ in variables)
        initializer = tf1.variables_initializer(stored)
    return Built(graph, fetches, initializer, size, variables)
