"""Which events a reader wants, and how they travel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from practicum.executor.delivery.filters import Wanted
from practicum.executor.store.cursors import group_cursor, trajectory_cursor
from practicum.executor.store.results import Result
from practicum.executor.tasks.backlog import rollout_ids
from practicum.v1 import executor_pb2

MAX_WHOLE_BYTES = 1024 * 1024
OVERHEAD_BYTES = 32
Frame = executor_pb2.StreamTrajectoriesResponse | executor_pb2.QueryTrajectoriesResponse
FrameT = TypeVar("FrameT", bound=Frame)


class Event(NamedTuple):
    """An event on its way into a frame: bytes of a serialized trajectory, or the completion of a group."""

    cursor: int
    result: Result
    start: int = 0
    stop: int = 0

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return OVERHEAD_BYTES + self.stop - self.start

    def put(self, frame: Frame) -> None:
        """Adds it to a frame, where a trajectory is parsed in its place: it isn't copied."""
        event, result = frame.events.add(cursor=self.cursor), self.result
        if self.cursor == group_cursor(result.number):
            event.group_complete.group_id = result.task_id
            event.group_complete.rollout_ids.extend(rollout_ids(result.task_id, result.group_size))
        elif self.stop - self.start == len(result.body):
            event.trajectory.MergeFromString(result.body)
        else:
            event.part.data, event.part.last = result.body[self.start : self.stop], self.stop == len(result.body)


def events_of(results: Iterable[Result], wanted: Wanted, *, after: int) -> Iterator[Event]:
    """The events of results that a filter lets through: those whose cursor comes after one."""
    for result in results:
        if not wanted.of_interest(result):
            continue
        if trajectory_cursor(result.number) > after and wanted.meets(result):
            yield from pieces(result)
        if result.group_size:
            yield Event(group_cursor(result.number), result)


def frames(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Events in frames of about two megabytes."""
    frame: list[Event] = []
    size = 0
    for event in events:
        if frame and size + event.size > 2 * MAX_WHOLE_BYTES:
            yield frame
            frame, size = [], 0
        frame.append(event)
        size += event.size
    if frame:
        yield frame


def pieces(result: Result) -> Iterator[Event]:
    """A trajectory as one event, or a larger one in parts."""
    cursor, size = trajectory_cursor(result.number), len(result.body)
    if size <= MAX_WHOLE_BYTES:
        yield Event(cursor, result, 0, size)
        return
    for start in range(0, size, MAX_WHOLE_BYTES):
        yield Event(cursor, result, start, min(start + MAX_WHOLE_BYTES, size))


def put_all(events: Iterable[Event], frame: FrameT) -> FrameT:
    """The frame with these events in it."""
    for event in events:
        event.put(frame)
    return frame
