"""Which events a reader wants, and how they travel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from practicum.executor.backlog import rollout_ids
from practicum.executor.cursors import group_cursor, trajectory_cursor
from practicum.executor.labels import matches
from practicum.executor.results import Result
from practicum.v1 import executor_pb2, trajectory_pb2

MAX_WHOLE_BYTES = 1024 * 1024


def events_of(
    results: Iterable[Result], wanted: executor_pb2.TrajectoryFilter, *, after: int
) -> Iterator[executor_pb2.TrajectoryEvent]:
    """The events of results that a filter lets through: those whose cursor comes after one."""
    for result in results:
        if not of_interest(wanted, result):
            continue
        if trajectory_cursor(result.number) > after and meets(wanted, result):
            yield from pieces(result)
        if result.group_size:
            yield group_complete(result)


def of_interest(wanted: executor_pb2.TrajectoryFilter, result: Result) -> bool:
    """Whether the task is one that a reader wants to hear of."""
    if wanted.labels and not matches(result.labels, wanted.labels):
        return False
    return not wanted.queues or result.queue in wanted.queues


def meets(wanted: executor_pb2.TrajectoryFilter, result: Result) -> bool:
    """Whether the trajectory of such a task meets the rest of a filter."""
    if wanted.outcomes and result.outcome not in wanted.outcomes:
        return False
    return not wanted.HasField("min_reward") or result.reward >= wanted.min_reward


def frames(events: Iterable[executor_pb2.TrajectoryEvent]) -> Iterator[list[executor_pb2.TrajectoryEvent]]:
    """Events in frames of about two megabytes."""
    frame: list[executor_pb2.TrajectoryEvent] = []
    size = 0
    for event in events:
        grown = size + event.ByteSize()
        if frame and grown > 2 * MAX_WHOLE_BYTES:
            yield frame
            frame, grown = [], event.ByteSize()
        frame.append(event)
        size = grown
    if frame:
        yield frame


def pieces(result: Result) -> Iterator[executor_pb2.TrajectoryEvent]:
    """A trajectory as one event, or a larger one in parts."""
    cursor, body = trajectory_cursor(result.number), result.body
    if len(body) <= MAX_WHOLE_BYTES:
        yield executor_pb2.TrajectoryEvent(cursor=cursor, trajectory=trajectory_pb2.Trajectory.FromString(body))
        return
    for start in range(0, len(body), MAX_WHOLE_BYTES):
        data, last = body[start : start + MAX_WHOLE_BYTES], start + MAX_WHOLE_BYTES >= len(body)
        yield executor_pb2.TrajectoryEvent(cursor=cursor, part=executor_pb2.TrajectoryPart(data=data, last=last))


def group_complete(result: Result) -> executor_pb2.TrajectoryEvent:
    """Tells that a result was the last of its group."""
    group = executor_pb2.GroupComplete(
        group_id=result.task_id, rollout_ids=rollout_ids(result.task_id, result.group_size)
    )
    return executor_pb2.TrajectoryEvent(cursor=group_cursor(result.number), group_complete=group)
