"""The public API: what is promised is there, and importing the package is cheap."""

from __future__ import annotations

import subprocess
import sys

import tfsched
from tfsched import _API


def test_everything_promised_is_there():
    assert set(_API) | {"TfschedError", "__version__", "ordering", "parallel", "placement"} == set(tfsched.__all__)
    for name in tfsched.__all__:
        assert getattr(tfsched, name) is not None


def test_importing_tfsched_and_its_orderings_does_not_import_tensorflow():
    code = "import sys, tfsched, tfsched.ordering; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_functions_of_a_process_by_itself_carry_no_options():
    code = """
import tensorflow as tf, tfsched, os
from tfsched.bench.ports import free_port
from tfsched.eager import calls
tfsched.enable(tfsched.Options(ordering="layer"))
double = tf.function(lambda x: x * 2.0)
assert float(double(tf.ones([]))) == 2.0
assert not calls.in_force().made  # no config was written
resolver = tfsched.cluster_resolver({"chief": [f"127.0.0.1:{free_port()}"]}, "chief", 0)
tf.config.experimental_connect_to_cluster(resolver, job_name="chief", make_master_device_default=False)
assert float(double(tf.ones([]))) == 2.0
assert calls.in_force().made
print("as it should be", flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "as it should be" in done.stdout, done.stderr


def test_plain_tensorflow_calls_work_by_name():
    code = """
import tensorflow as tf, tfsched, os
from tfsched.bench.ports import free_port
tfsched.load()
server = tf.distribute.Server({"worker": [f"127.0.0.1:{free_port()}"]}, protocol=tfsched.PROTOCOL)
config = tf.compat.v1.ConfigProto()
config.graph_options.rewrite_options.min_graph_nodes = -1
optimizer = config.graph_options.rewrite_options.custom_optimizers.add()
optimizer.name = "tfsched"
optimizer.parameter_map["ordering"].s = b"layer"
with tf.Graph().as_default(), tf.compat.v1.Session(server.target, config=config) as session:
    session.run(tf.add(tf.compat.v1.random_uniform([2]), 1.0))
from tfsched.grappler.bridge import pass_stats
stats = pass_stats()
assert stats.graphs > 0 and not stats.errors, stats
os._exit(0)
"""
    result = subprocess.run([sys.executable, "-c", code], timeout=100, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-2000:]
