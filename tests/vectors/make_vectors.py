"""Writes one test vector for each message of the protocol: filled by rule, as JSON and as binary (hex).

Another language verifies its bindings by parsing `json`, parsing `hex`, and finding both equal.
Maps hold one entry, so that the binary form is the same everywhere.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

FILES = (
    "message",
    "task",
    "trajectory",
    "executor",
    "dispatch",
    "env_gateway",
    "inference",
    "trainer",
    "reserved",
)
PATH = Path(__file__).parent / "vectors.json"
DEPTH = 5


def descriptors() -> list[Descriptor]:
    """Every top-level message of practicum.v1."""
    modules = [importlib.import_module(f"practicum.v1.{name}_pb2") for name in FILES]
    return [d for module in modules for d in module.DESCRIPTOR.message_types_by_name.values()]


def filled(descriptor: Descriptor, depth: int = DEPTH) -> Message:
    """A message with every field set; of each oneof the last field wins."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        fill(message, field, depth)
    return message


def fill(message: Message, field: FieldDescriptor, depth: int) -> None:
    """Sets one field."""
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        getattr(message, field.name)[scalar(key)] = scalar(value)
    elif field.message_type is not None:
        if depth:
            child = filled(field.message_type, depth - 1)
            target = getattr(message, field.name)
            target.append(child) if field.is_repeated else target.CopyFrom(child)
    elif field.is_repeated:
        getattr(message, field.name).append(scalar(field))
    else:
        setattr(message, field.name, scalar(field))


def scalar(field: FieldDescriptor) -> str | bytes | bool | int | float:
    """A value that a reader who mixes fields or signs up would get wrong."""
    if field.type == field.TYPE_STRING:
        return f"{field.name} ü"
    if field.type == field.TYPE_BYTES:
        return bytes((field.number, 0, 255))
    if field.type == field.TYPE_BOOL:
        return True
    if field.type == field.TYPE_ENUM:
        return int(field.enum_type.values[-1].number)
    if field.type == field.TYPE_DOUBLE:
        return field.number + 0.25
    if field.full_name.startswith("google.protobuf."):
        return field.number
    return -field.number if field.type == field.TYPE_INT32 else 2**53 + field.number


def vectors() -> list[dict[str, object]]:
    """The vectors, in the order of the protocol's files."""
    messages = [filled(descriptor) for descriptor in descriptors()]
    return [
        {
            "type": message.DESCRIPTOR.full_name,
            "json": json_format.MessageToDict(message),
            "hex": message.SerializeToString(deterministic=True).hex(),
        }
        for message in messages
    ]


if __name__ == "__main__":
    PATH.write_text(json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
