"""Programs that count: each step takes one off every element, so what a read sees says which steps it saw."""

import os
import time

import numpy as np
import tensorflow as tf

from . import common
from .common import v1

_LAYERS = 4


class Program:
    """A graph whose training step takes 1 off each element of each variable, and sessions that stay open.

    Attributes:
      built: fetches "train", "values", "add" (adds 1000 to all), "doubled" (a function of them) and "looped" (reads within a
        loop).
    """

    def __init__(self, task, side):
        self.task = task
        with tf.Graph().as_default() as self.graph, v1.device(common.on_ps(task)):
            self.variables = [
                v1.get_variable(f"v{n}", [side, side], initializer=v1.zeros_initializer(), use_resource=True)
                for n in range(_LAYERS)
            ]
            with v1.device(common.here(task)):
                loss = tf.add_n([tf.reduce_sum(_with_gradient_one(one.read_value())) for one in self.variables])
            # What a step has read, all of it: no update of its own can come before.
            self.read = loss / (_LAYERS * side * side)
            self.train = v1.train.GradientDescentOptimizer(1.0).minimize(loss)
            self.values = [one.read_value() for one in self.variables]
            self.add = tf.group(*(one.assign_add(tf.fill([side, side], 1000.0), read_value=False) for one in self.variables))
            looped = lambda i, total: (i + 1, total + sum(tf.reduce_sum(one.read_value()) for one in self.variables))  # noqa: E731
            v1.disable_control_flow_v2()
            self.looped = tf.while_loop(lambda i, total: i < 3, looped, [0, 0.0])[1]
            self.init = v1.global_variables_initializer()
            self.saver = v1.train.Saver(max_to_keep=1000)

    def session(self, options, target=None, config=None):
        """A session of its own configuration; ``options`` None is a stock one."""
        config = config or common.session_config(self.task, options, operation_timeout_in_ms=60_000)
        return v1.Session(target or self.task.target, graph=self.graph, config=config)


def _with_gradient_one(value):
    """What has a gradient of exactly 1 that still has to be computed from the value."""
    return value * tf.stop_gradient(tf.clip_by_value(value, 1.0, 1.0))


def seen(values):
    """The one number that all elements of all variables are, or what else there is."""
    found = sorted({float(one) for value in values for one in np.unique(value)})
    return found[0] if len(found) == 1 else found


def reads_after_each_step(task, options, steps, side, first, second=None, target=None):
    """What a reader sees right after each step.

    Args:
      options: of the session that trains.
      first: what runs before the first training step: "read", "looped", "add", "drain", "save" or "nothing".
      second: whose read it is: None for the session that trains, "config" for a session of a config of its own, "broken" for
        one whose options cannot be used, "stock" for one without tfsched.
      target: another master for the second session.
    """
    import tfsched

    program = Program(task, side)
    with program.session(options) as trainer:
        trainer.run(program.init)
        reader = trainer
        if second is not None:
            reader = program.session({"config": options, "broken": {"ordering": "tao"}, "stock": None}[second], target)
        directory = os.path.join(os.path.dirname(task.spec.get("log", "")) or "/tmp", f"whole-{os.getpid()}")
        if first == "read":
            reader.run(program.values)
        elif first == "looped":
            reader.run(program.looped)
        elif first == "add":
            reader.run(program.add)
        elif first == "drain":
            tfsched.drain(trainer)
        elif first == "save":
            program.saver.save(reader, directory, global_step=0, write_meta_graph=False)
        found = []
        for step in range(steps):
            trainer.run(program.train)
            if first == "add":
                reader.run(program.add)
                found.append(seen(reader.run(program.values)))
            elif first == "looped":
                found.append(float(reader.run(program.looped)))
            elif first == "drain":
                tfsched.drain(trainer)
                found.append(tfsched.stats()["background_outstanding"])
            elif first == "save":
                path = program.saver.save(reader, directory, global_step=step + 1, write_meta_graph=False)
                saved = tf.train.load_checkpoint(path)
                found.append(seen([saved.get_tensor(one.op.name) for one in program.variables]))
                for name in tf.io.gfile.glob(path + "*"):
                    tf.io.gfile.remove(name)
            else:
                found.append(seen(reader.run(program.values)))
        if reader is not trainer:
            reader.close()
    return found


def trained_in_turns(task, options, steps, side, target=None, others=None):
    """Two sessions of two configs train the same variables in turns; what each step has read, and the end."""
    program = Program(task, side)
    with program.session(options) as one, program.session(others or options, target) as other:
        one.run(program.init)
        read = [float(session.run([program.read, program.train])[0]) for _ in range(steps) for session in (one, other)]
        return read, seen(one.run(program.values))


def trained_one_after_another(task, options, steps, side, target, pause_s):
    """One session trains, is closed, and after a while the next one of the same graph opens; what each step has read."""
    program, read = Program(task, side), []
    config = common.session_config(task, options, operation_timeout_in_ms=60_000)
    for number in range(steps):
        with program.session(options, target, config) as session:
            if number == 0:
                session.run(program.init)
            read.append(float(session.run([program.read, program.train])[0]))
        time.sleep(pause_s)
    return read


def monitored(task, options, directory, steps, save_steps, side=700, count=8, hook=False):
    """The stock saver hook of a MonitoredTrainingSession: name of each checkpoint -> digests of its arrays."""
    from .crossing import digest

    tf.config.experimental.enable_op_determinism()
    with tf.Graph().as_default(), v1.device(common.on_ps(task)):
        step = v1.train.get_or_create_global_step()
        hidden = tf.random.stateless_normal([4, side], seed=[1, 2])
        for layer in range(count):
            hidden = tf.tanh(hidden @ common.variable(f"w{layer}", [side, side], layer))
        with v1.device(common.here(task)):
            loss = tf.reduce_mean(tf.square(hidden - 1.0))
        train = v1.train.MomentumOptimizer(0.5, 0.9).minimize(loss, global_step=step)
        scaffold = v1.train.Scaffold(saver=v1.train.Saver(max_to_keep=1000))
        hooks = [v1.train.StopAtStepHook(last_step=steps)]
        if hook:
            import tfsched

            hooks.append(tfsched.DrainHook())
        with v1.train.MonitoredTrainingSession(
            task.target,
            checkpoint_dir=directory,
            save_checkpoint_steps=save_steps,
            save_checkpoint_secs=None,
            scaffold=scaffold,
            hooks=hooks,
            save_summaries_steps=None,
            save_summaries_secs=None,
            log_step_count_steps=None,
            config=common.session_config(task, options),
        ) as session:
            while not session.should_stop():
                session.run(train)
    held = {}
    for path in tf.train.get_checkpoint_state(directory).all_model_checkpoint_paths:
        reader = tf.train.load_checkpoint(path)
        arrays = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        held[path.rpartition("-")[2]] = digest(arrays)
    return held
