"""The messages of control.proto, as classes made from its descriptor: any protobuf from 4.22 on fits.

Code that protoc generates works with the protobuf that it was generated for and a few later ones; TensorFlow 2.16 and 2.21
need different ones. So protoc's descriptor set (control.binpb, written by ``make proto``) is loaded instead.
"""

from __future__ import annotations

import pathlib
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    struct_pb2,  # noqa: F401  (control.proto imports it: its descriptor has to be known)
)

PACKAGE = "tfsched.control"
SERVICE = f"{PACKAGE}.Control"
DESCRIPTOR_SET = pathlib.Path(__file__).with_name("control.binpb")


def _load() -> descriptor_pb2.FileDescriptorProto:
    files = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTOR_SET.read_bytes()).file
    (file,) = files
    descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
    return file


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(f"{PACKAGE}.{name}"))


FILE = _load()
Stats, StatsRequest = _message("Stats"), _message("StatsRequest")
Transfers, TransfersRequest = _message("Transfers"), _message("TransfersRequest")
Description, DescriptionRequest = _message("Description"), _message("DescriptionRequest")

# Call -> (class of its request, class of its answer).
CALLS: dict[str, tuple[Any, Any]] = {
    "GetStats": (StatsRequest, Stats),
    "GetTransfers": (TransfersRequest, Transfers),
    "GetDescription": (DescriptionRequest, Description),
}
