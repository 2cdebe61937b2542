"""Who asked for crossing the barrier and does not get it for a variable is told, in one line of what a program prints."""

import subprocess
import sys

import pytest

from .cluster import task_environment

pytestmark = pytest.mark.timeout(300)
LINE = "barrier=False was asked for"
PROGRAM = """
import os
import sys

import tensorflow as tf
import tfsched
from tfsched.bench.ports import free_ports

v1 = tf.compat.v1
v1.disable_eager_execution()
ports = free_ports(2)
cluster = {"ps": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"]}
servers = [tfsched.Server(cluster, job_name=job, task_index=0) for job in ("ps", "worker")]


def train(config, factor):
    with tf.Graph().as_default():
        with v1.device(v1.train.replica_device_setter(ps_tasks=1, worker_device="/job:worker/task:0")):
            steps = v1.train.get_or_create_global_step()
            table = v1.get_variable("table", [100, 8], use_resource=True)
            hidden = tf.nn.embedding_lookup(table, [1, 2, 3])
            for layer in range(8):
                old = v1.get_variable(f"old{layer}", [8, 8], use_resource=False)
                hidden = tf.tanh(hidden @ old @ v1.get_variable(f"new{layer}", [8, 8], use_resource=True))
            with tf.device("/job:worker/task:0"):
                own = v1.get_variable("own", [8], use_resource=True)
            step = v1.train.GradientDescentOptimizer(factor).minimize(tf.reduce_sum(hidden * own), global_step=steps)
        with v1.Session(servers[1].target, config=config) as session:
            session.run(v1.global_variables_initializer())
            for _ in range(3):
                session.run(step)


train(tfsched.session_config(tfsched.Options()), 0.1)
print("ASKED", file=sys.stderr, flush=True)
config = tfsched.session_config(tfsched.Options(barrier=False))
train(config, 0.1)
train(config, 0.2)
print("TRAINED", file=sys.stderr, flush=True)
os._exit(0)  # servers cannot be stopped
"""


def test_one_line_says_which_variables_keep_the_barrier_and_why(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=280, env=task_environment())
    assert done.returncode == 0 and "TRAINED" in done.stderr, done.stderr
    before, _, after = done.stderr.partition("ASKED")
    assert LINE not in before
    lines = [line for line in after.splitlines() if LINE in line]
    assert len(lines) == 1, done.stderr  # of two graphs and two sessions, each rewritten twice
    (line,) = lines
    assert line.startswith("tfsched WARNING: ")
    assert "9 variables are updated within the step all the same" in line
    assert "table (its gradient is sparse)" in line
    assert "old0, old1, old2, old3, old4 and 3 more (it is a reference variable; use_resource=True helps)" in line
    # Those that cross, and those that no crossing could help, are not mentioned.
    assert not any(name in line for name in ("new", "own", "global_step"))
