"""A run's events: framed, numbered from 1 without gaps, kept in an append-only file, live for whoever watches, and read
back as how the run stands. The journal is the only thing that the service remembers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

from practicum.v1 import trainer_pb2

# A frame is four bytes of length, little-endian, then the body.
LENGTH = struct.Struct("<I")
ENDED = frozenset(
    {trainer_pb2.RUN_STATE_SUCCEEDED, trainer_pb2.RUN_STATE_FAILED, trainer_pb2.RUN_STATE_STOPPED},
)


class Journal:
    """The events of one run. Methods are called from one event loop."""

    def __init__(self, path: Path) -> None:
        """Opens or makes the file. What a kill -9 cut short at its end is dropped."""
        data = path.read_bytes() if path.exists() else b""
        self.events = [trainer_pb2.RunEvent.FromString(body) for body in unframe(data)]
        whole = sum(len(frame(event.SerializeToString())) for event in self.events)
        self._file = path.open("ab")
        self._file.truncate(whole)
        self._changed = asyncio.Event()

    def append(self, event: trainer_pb2.RunEvent) -> None:
        """Numbers the event, keeps it, and tells the watchers."""
        event.sequence = len(self.events) + 1
        if not event.HasField("time"):
            event.time.GetCurrentTime()
        self._file.write(frame(event.SerializeToString()))
        self._file.flush()
        self.events.append(event)
        self._changed.set()
        self._changed = asyncio.Event()

    async def watch(self, from_sequence: int) -> AsyncIterator[list[trainer_pb2.RunEvent]]:
        """Events from a number on, several at once when there are, and then as they come, for ever."""
        place = max(from_sequence - 1, 0)
        while True:
            changed = self._changed
            if new := self.events[place:]:
                place += len(new)
                yield new
            else:
                await changed.wait()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def frame(body: bytes) -> bytes:
    """The body as a frame."""
    return LENGTH.pack(len(body)) + body


def unframe(data: bytes) -> Iterator[bytes]:
    """The bodies of whole frames. A last frame that is cut short, as by a kill -9, is left out."""
    start = 0
    while start + LENGTH.size <= len(data):
        (length,) = LENGTH.unpack_from(data, start)
        end = start + LENGTH.size + length
        if end > len(data):
            return
        yield data[start + LENGTH.size : end]
        start = end


def run_of(spec: trainer_pb2.RunSpec, events: Iterable[trainer_pb2.RunEvent]) -> trainer_pb2.Run:
    """The run after these events. The note right before RUN_STATE_FAILED says why it failed."""
    run = trainer_pb2.Run(spec=spec, state=trainer_pb2.RUN_STATE_QUEUED)
    note = ""
    for event in events:
        apply(run, event, note)
        note = event.note
    return run


def apply(run: trainer_pb2.Run, event: trainer_pb2.RunEvent, note: str) -> None:
    """Carries one event into the run. `note`: the text of the event before, if it was a note."""
    if event.stage:
        run.stage = event.stage
    match event.WhichOneof("event"):
        case "state":
            run.state = event.state
            run.detail = note if event.state == trainer_pb2.RUN_STATE_FAILED else ""
            apply_time(run, event)
        case "stage_started":
            run.step = 0
        case "step":
            run.step = event.step.step
            run.policy_version = max(run.policy_version, event.step.policy_version)
        case "evaluation":
            run.policy_version = max(run.policy_version, event.evaluation.policy_version)


def apply_time(run: trainer_pb2.Run, event: trainer_pb2.RunEvent) -> None:
    """When it began first, and when it ended last."""
    if not run.HasField("started_at"):
        run.started_at.CopyFrom(event.time)
    if event.state in ENDED:
        run.finished_at.CopyFrom(event.time)
    else:
        run.ClearField("finished_at")
