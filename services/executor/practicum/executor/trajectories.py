"""Which events a reader wants, and how they travel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from practicum.executor.labels import matches
from practicum.executor.store import StoredEvent
from practicum.v1 import executor_pb2, trajectory_pb2

MAX_WHOLE_BYTES = 1024 * 1024


def wants(wanted: executor_pb2.TrajectoryFilter, event: StoredEvent) -> bool:
    """Whether an event meets a filter. The completion of a group has neither outcome nor reward."""
    if not matches(event.labels, wanted.labels) or (wanted.queues and event.queue not in wanted.queues):
        return False
    if not event.rollout_id:
        return True
    if wanted.outcomes and event.outcome not in wanted.outcomes:
        return False
    return not wanted.HasField("min_reward") or event.reward >= wanted.min_reward


def frames(events: Iterable[StoredEvent]) -> Iterator[list[executor_pb2.TrajectoryEvent]]:
    """Events in frames of about a megabyte; a larger trajectory travels in parts."""
    frame: list[executor_pb2.TrajectoryEvent] = []
    size = 0
    for piece in (piece for event in events for piece in pieces(event)):
        grown = size + piece.ByteSize()
        if frame and grown > 2 * MAX_WHOLE_BYTES:
            yield frame
            frame, grown = [], piece.ByteSize()
        frame.append(piece)
        size = grown
    if frame:
        yield frame


def pieces(event: StoredEvent) -> Iterator[executor_pb2.TrajectoryEvent]:
    """One event, or the parts of one."""
    if not event.rollout_id:
        group = executor_pb2.GroupComplete.FromString(event.body)
        yield executor_pb2.TrajectoryEvent(cursor=event.cursor, group_complete=group)
    elif len(event.body) <= MAX_WHOLE_BYTES:
        trajectory = trajectory_pb2.Trajectory.FromString(event.body)
        yield executor_pb2.TrajectoryEvent(cursor=event.cursor, trajectory=trajectory)
    else:
        for start in range(0, len(event.body), MAX_WHOLE_BYTES):
            data, last = event.body[start : start + MAX_WHOLE_BYTES], start + MAX_WHOLE_BYTES >= len(event.body)
            part = executor_pb2.TrajectoryPart(data=data, last=last)
            yield executor_pb2.TrajectoryEvent(cursor=event.cursor, part=part)
