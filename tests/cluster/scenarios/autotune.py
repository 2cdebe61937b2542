"""Training that tunes itself. Its clock is told what each step takes, by what is in force, where no link is slow."""

import math
import threading
import time

import tensorflow as tf
from scenarios import common, mirrored, parallel, strategy

v1 = tf.compat.v1
OPTIONS = {"policy": "bytescheduler", "credit_bytes": 250_000}


def bowl_s(policy, credit_bytes):
    """Seconds of a step, least at a credit of 4 MB; what the first setting of OPTIONS takes is twice as much."""
    if policy in ("fifo", "p3"):
        return 0.5
    return 0.1 * (1 + abs(math.log2((OPTIONS["credit_bytes"] if credit_bytes < 0 else credit_bytes) / 4e6)) / 4)


def _seconds(stats, times):
    return bowl_s(stats["policy"], stats["credit_bytes"]) if times == "bowl" else 0.1


def told(tuner):
    """What a test wants to know at the end."""
    tuner.wait()
    decision = tuner.decision
    return {
        "state": tuner.state,
        "chosen": None if decision is None else list(decision.setting),
        "changed": None if decision is None else decision.changed,
        "lost_steps": None if decision is None else tuner.lost_s / decision.seconds,
        "reason": "" if decision is None else decision.reason,
    }


def session(task, steps, times=None, until_end=False, answer_s=None, hold_at=None, **arguments):
    """A session's training of the model "main"; ``times``: "bowl" or "flat" tunes it. Losses, and the tuner's end.

    Behind ``hold_at`` steps it waits for :func:`go_on`.
    """
    import tfsched
    import tfsched.online.reach

    model = task.state["main"]
    if answer_s:
        tfsched.online.reach.ANSWER_S = answer_s
    task.state["go on"] = threading.Event()
    now = [0.0]
    if times is None:
        return {"losses": [float(model.session.run(model.fetches["train"])).hex() for _ in range(steps)]}
    tuner = task.state["tuner"] = tfsched.autotune(model.session, clock=lambda: now[0], **arguments)
    losses = []
    while len(losses) < steps or (until_end and tuner.state == "searching"):
        if len(losses) == hold_at:
            task.state["go on"].wait(60)
        with tuner.step():
            losses.append(float(model.session.run(model.fetches["train"])).hex())
            now[0] += _seconds(tfsched.stats(model.session, "/job:ps/task:0"), times)
    return {"losses": losses[:steps], **told(tuner)}


def go_on(task):
    """Lets :func:`session` go on."""
    task.state["go on"].set()


def state(task):
    """Whether the tuner of this process still searches, and what it tells the control service."""
    from tfsched.control import about

    return about.parts().get("tuner", {})


def _computing(seconds):
    """An identity that takes so long on a worker, but none of the machine's processors."""

    def sleep(value):
        time.sleep(seconds)
        return value

    return lambda x: tf.ensure_shape(tf.numpy_function(sleep, [x], x.dtype), x.shape)


def monitored(task, steps, options, layers=8, width=256, layer_s=0.008, **arguments):
    """A MonitoredSession that tunes itself over slow links, by the real clock: forward passes through layers that sleep."""
    import tfsched

    compute = _computing(layer_s)
    with tf.Graph().as_default(), v1.device(common.on_ps(task)):
        v1.train.get_or_create_global_step()
        hidden = tf.random.stateless_normal([4, width], seed=[1, 2])
        for layer in range(layers):
            hidden = compute(tf.tanh(hidden @ common.variable(f"w{layer}", [width, width], layer)))
        loss = tf.reduce_mean(tf.square(hidden - 1.0))
        hook = tfsched.AutotuneHook(**arguments)
        config = common.session_config(task, options)
        creator = v1.train.ChiefSessionCreator(v1.train.Scaffold(saver=None), task.target, config=config)
        taken_s = []
        with v1.train.MonitoredSession(creator, [hook]) as opened:
            for _ in range(steps):
                began_s = time.monotonic()
                opened.run(loss)
                taken_s.append(time.monotonic() - began_s)
                if hook.tuner.state != "searching":
                    break
    return {**told(hook.tuner), "taken_s": taken_s}


def fit(task, tuned, **arguments):
    """tf_keras under ParameterServerStrategy; what strategy.fit returns, and the tuner's end."""
    if not tuned:
        return strategy.fit(task, **arguments)
    import tf_keras

    import tfsched

    now = [0.0]

    class Clock(tf_keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self._supports_tf_logs = True

        def on_train_batch_end(self, batch, logs=None):
            if batch % 8 == 7:  # steps that are awaited together
                stats = tfsched.stats(task="/job:ps/task:0")
                now[0] += 8 * bowl_s(stats["policy"], stats["credit_bytes"])

    callback = tfsched.AutotuneCallback(clock=lambda: now[0], samples=16, warmup=1)
    result = strategy.fit(task, callbacks=[Clock(), callback], **arguments)
    return {**result, **told(callback.tuner)}


def _clock_of_messages():
    """A step takes the longer the more messages leave this worker: so pieces show, if they are in force."""
    import tfsched

    sent, now = [tfsched.stats()["tasks"]], [0.0]

    def clock():
        tasks = tfsched.stats()["tasks"]
        now[0] += 0.05 + 0.01 * (tasks - sent[0])
        sent[0] = tasks
        return now[0]

    return clock


def all_reduce(task, tuned, steps=70):
    """A custom loop under MultiWorkerMirroredStrategy, its first pieces small; what mirrored.train returns, and more."""
    import tfsched

    options = {"partition_bytes": 8192, "policy": "bytescheduler"}
    tuner = None
    if tuned:
        mirrored.join(task, options)
        bounds = {"piece_bytes": (8192, 200_000), "policies": ("bytescheduler",)}
        tuner = tfsched.autotune(clock=_clock_of_messages(), samples=22, **bounds)
    result = mirrored.train(task, options, steps=steps, **({"around": tuner.step} if tuned else {}))
    return {**result, **(told(tuner) if tuned else {})}


def keras3(task, tuned):
    """Model.fit of Keras 3 with tfsched.parallel; its history and weights, and the tuner's end."""
    import tfsched

    if not tuned:
        return parallel.fit(task, epochs=14)
    callback = tfsched.AutotuneCallback(clock=_clock_of_messages(), samples=15, warmup=2)
    return {**parallel.fit(task, epochs=14, more=[callback]), **told(callback.tuner)}


def cut_short(task, steps):
    """A session's training that ends before its tuner does."""
    import tfsched

    model, now, losses = task.state["main"], [0.0], []
    tuner = tfsched.autotune(model.session, clock=lambda: now[0])
    for number in range(steps):
        with tuner.step():
            losses.append(float(model.session.run(model.fetches["train"])).hex())
            now[0] += 0.1 + 0.01 * (number % 3)
    tuner.close()
    return {"losses": losses, **told(tuner)}
