"""Refuses frames of nodes that are wrong, naming each field."""

from __future__ import annotations

from collections.abc import Iterator

from practicum.common.errors import InvalidArgument
from practicum.executor.names import NAME
from practicum.v1 import dispatch_pb2

MAX_SLOTS = 65_536
MAX_KINDS = 1_000


def check_register(register: dispatch_pb2.Register) -> None:
    """Raises InvalidArgument with every field that is wrong."""
    if wrong := {f"register.{field}": text for field, text in register_faults(register)}:
        raise InvalidArgument(wrong)


def check_frame(frame: dispatch_pb2.ConnectRequest) -> None:
    """A frame after the first. Raises InvalidArgument with every field that is wrong.

    Unknown fields are dropped: nested deeply enough, a Message that has some could not be read in a journal again. To
    find out how deeply would take ten times as long, and there are many Messages.
    """
    frame.DiscardUnknownFields()
    wrong = {}
    if frame.HasField("register"):
        wrong["register"] = "came before; a stream registers once, in its first frame"
    for name in ("running", "queued"):
        if getattr(frame.heartbeat, name) < 0:
            wrong[f"heartbeat.{name}"] = "is negative"
    if wrong:
        raise InvalidArgument(wrong)


def register_faults(register: dispatch_pb2.Register) -> Iterator[tuple[str, str]]:
    """The fields that are wrong, with what is wrong."""
    if not register.node_id:
        yield "node_id", "is empty; give an id that is stable over restarts"
    elif not NAME.fullmatch(register.node_id):
        yield "node_id", f"must match {NAME.pattern}"
    if not register.incarnation:
        yield "incarnation", "is empty; give a UUID made when the process starts"
    elif not NAME.fullmatch(register.incarnation):
        yield "incarnation", f"must match {NAME.pattern}"
    if not 1 <= register.slots <= MAX_SLOTS:
        yield "slots", f"is {register.slots}; give 1 to {MAX_SLOTS}"
    if not 1 <= len(register.agent_kinds) <= MAX_KINDS:
        yield "agent_kinds", f"names {len(register.agent_kinds)} agents; name 1 to {MAX_KINDS}"
    if len(register.labels) > MAX_KINDS:
        yield "labels", f"has {len(register.labels)} labels; give at most {MAX_KINDS}"
