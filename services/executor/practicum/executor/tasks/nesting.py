"""Finds what can be read alone, but not within a frame: protobuf reads nothing that is nested deeper than 100 levels.

Known fields of tasks and trajectories are never deep; groups of unknown ones may be. Such a one would end every stream
that it is to travel on, again and again. Both kinds travel in frames that add two levels.
"""

from __future__ import annotations

from typing import Protocol

from google.protobuf.message import DecodeError

from practicum.v1 import dispatch_pb2, executor_pb2

TOO_DEEP = "is nested more deeply than a frame can hold"
# A level takes two bytes at least: what is shorter is never too deep. What is longer than any frame travels in parts.
MIN_BYTES, MAX_BYTES = 2 * 96, 4 * 1024 * 1024


class Frame(Protocol):
    """A kind of frame."""

    @staticmethod
    def FromString(data: bytes, /) -> object:
        """Reads one, or raises DecodeError."""


def is_deep_task(task: bytes) -> bool:
    """Whether no node could be given it: ConnectResponse.assignments.task."""
    return is_deep(task, b"\x12", b"\x2a", dispatch_pb2.ConnectResponse)


def is_deep_trajectory(trajectory: bytes) -> bool:
    """Whether no consumer could be sent it: StreamTrajectoriesResponse.events.trajectory."""
    return is_deep(trajectory, b"\x0a", b"\x12", executor_pb2.StreamTrajectoriesResponse)


def is_deep(body: bytes, outer: bytes, inner: bytes, frame: type[Frame]) -> bool:
    """Whether a message that can be read alone can't be read within a frame, in the fields with these tags."""
    size = len(body)
    if not MIN_BYTES <= size <= MAX_BYTES:
        return False
    try:
        frame.FromString(b"".join((outer, padded(size + 6), inner, padded(size), body)))
    except DecodeError:
        return True
    return False


def padded(size: int) -> bytes:
    """A varint of five bytes, which is found without a loop: this is done for every task and result."""
    low = size & 0x7F | (size & 0x3F80) << 1 | (size & 0x1FC000) << 2 | (size & 0xFE00000) << 3
    return (0x80808080 | low | (size >> 28) << 32).to_bytes(5, "little")
