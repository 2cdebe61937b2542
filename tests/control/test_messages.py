"""The descriptor that is loaded is control.proto's, and messages carry what they are given."""

import subprocess
import sys

import pytest
from google.protobuf import descriptor_pb2

from tfsched.control import messages


def test_the_descriptor_is_that_of_the_proto_file(tmp_path):
    pytest.importorskip("grpc_tools")  # not with TensorFlow 2.16, whose protobuf is too old for it
    made = tmp_path / "control.binpb"
    directory = messages.DESCRIPTOR_SET.parent
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        "-I",
        str(directory),
        f"--descriptor_set_out={made}",
        "control.proto",
    ]
    subprocess.run(command, check=True, timeout=60)
    (file,) = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file
    assert file == messages.FILE, "run make proto"


def test_every_call_of_the_service_is_served():
    (service,) = messages.FILE.service
    assert f"{messages.FILE.package}.{service.name}" == messages.SERVICE
    for method in service.method:
        request, answer = messages.CALLS[method.name]
        assert method.input_type == f".{request.DESCRIPTOR.full_name}"
        assert method.output_type == f".{answer.DESCRIPTOR.full_name}"
        assert not method.client_streaming and not method.server_streaming
    assert len(service.method) == len(messages.CALLS)


def test_messages_survive_the_wire():
    sent = messages.Stats(numbers={"bytes": 1 << 60, "credit_bytes": -1}, texts={"policy": "graph"}, unix_us=5)
    got = messages.Stats.FromString(sent.SerializeToString())
    assert dict(got.numbers) == {"bytes": 1 << 60, "credit_bytes": -1} and dict(got.texts) == {"policy": "graph"}
    described = messages.Description(tasks=["/job:ps/task:0"])
    described.parts["options"].update({"seed": 1, "strict": True, "policy": "p3"})
    got = messages.Description.FromString(described.SerializeToString())
    assert dict(got.parts["options"]) == {"seed": 1.0, "strict": True, "policy": "p3"}
