"""Traces and plans on s3://, against a local S3 server. Needs tensorflow-io: .ci/run has it with TensorFlow 2.16.2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from test_cli import DAG, tfsched

from tfsched.bench.ports import free_port

pytest.importorskip("tensorflow_io", reason="tensorflow-io is for TensorFlow 2.16.2", exc_type=ImportError)
boto3 = pytest.importorskip("boto3", reason="extra s3")

KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}
STARTUP_S = 60


@pytest.fixture(scope="module")
def s3():
    """A bucket on a local S3 server: (client, the environment that leads tensorflow-io there)."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        for _ in range(STARTUP_S * 5):
            assert server.poll() is None, "the S3 server has died"
            try:
                urllib.request.urlopen(endpoint, timeout=5)
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.2)
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        client.create_bucket(Bucket="bucket")
        yield client, {**KEYS, "S3_ENDPOINT": endpoint}
    finally:
        server.kill()
        server.wait(timeout=30)


def test_a_dag_is_read_from_and_a_plan_written_to_s3(s3):
    client, env = s3
    client.put_object(Bucket="bucket", Key="dag.json", Body=json.dumps(DAG).encode())
    result = tfsched("order", "s3://bucket/dag.json", "--algorithm", "tao", "--plan", "s3://bucket/plan.json", env=env)
    assert result.returncode == 0, result.stderr
    plan = json.loads(client.get_object(Bucket="bucket", Key="plan.json")["Body"].read())
    assert [row["name"] for row in plan["transfers"]] == ["recv/a", "recv/b"]


def test_a_missing_object_is_one_sentence(s3):
    result = tfsched("order", "s3://bucket/none.json", env=s3[1])
    assert result.returncode == 2, result.stderr
    assert "s3://bucket/none.json cannot be read" in result.stderr


def test_a_trace_and_a_session_plan_go_through_s3(s3):
    _, env = s3
    code = """
import tensorflow_io, os
import tfsched
from tfsched.grappler.rewrite import load_plan
from tfsched.ordering import Plan
from tfsched.tracing import StepTrace, TracedStep, load_trace
trace = StepTrace([("a", "NoOp", "", [])], {}, {}, [TracedStep(0, 9, {"a": (1, 2)}, {})], "x")
trace.save("s3://bucket/t.json.gz")
assert load_trace("s3://bucket/t.json.gz") == trace
import tensorflow as tf
Plan("mine", {"w:0": 1.0}, {}).save("s3://bucket/p.json", open_fn=tf.io.gfile.GFile)
assert load_plan("s3://bucket/p.json").priorities == {"w:0": 1.0}
assert b"w:0" in tfsched.session_config(tfsched.Options(plan="s3://bucket/p.json")).SerializeToString()
print("good", flush=True)
os._exit(0)
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env={**os.environ, **env}
    )
    assert result.stdout.strip() == "good", result.stderr[-2000:]
