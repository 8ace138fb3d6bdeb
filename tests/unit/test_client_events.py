"""From events to trajectories."""

from __future__ import annotations

import pickle

from practicum.client.events import Assembler
from practicum.v1 import executor_pb2, trajectory_pb2


def event(cursor: int) -> executor_pb2.TrajectoryEvent:
    """A whole trajectory."""
    return executor_pb2.TrajectoryEvent(
        cursor=cursor, trajectory=trajectory_pb2.Trajectory(rollout_id=f"t{cursor}/0", final_answer="x" * 50)
    )


def parts(cursor: int) -> list[executor_pb2.TrajectoryEvent]:
    """The same in two parts."""
    body = event(cursor).trajectory.SerializeToString()
    first, second = (executor_pb2.TrajectoryPart(data=body[:9]), executor_pb2.TrajectoryPart(data=body[9:], last=True))
    return [executor_pb2.TrajectoryEvent(cursor=cursor, part=part) for part in (first, second)]


def cursors(assembler: Assembler, *events: executor_pb2.TrajectoryEvent) -> list[int]:
    """Of the trajectories that come out."""
    return [cursor for cursor, _ in assembler.trajectories(events)]


def test_what_comes_again_on_a_new_stream_is_dropped() -> None:
    """Whole or in parts; what is new is not."""
    assembler = Assembler()
    assert cursors(assembler, event(3), *parts(7)) == [3, 7]
    assembler.restart()
    assert cursors(assembler, event(3), *parts(7), event(8)) == [8]


def test_a_trajectory_whose_parts_were_cut_comes_whole() -> None:
    """From its first part."""
    assembler = Assembler()
    assert cursors(assembler, parts(2)[0]) == []
    assert assembler.within_parts
    assembler.restart()
    ((cursor, trajectory),) = assembler.trajectories(parts(2))
    assert (cursor, trajectory) == (2, event(2).trajectory)


def test_an_endless_reader_does_not_grow() -> None:
    """Whatever was read before, the reader keeps as much."""
    assembler = Assembler()
    cursors(assembler, *(event(1000 + number) for number in range(10)))
    before = len(pickle.dumps(assembler))
    cursors(assembler, *(event(2000 + number) for number in range(1000)))
    assert len(pickle.dumps(assembler)) == before
