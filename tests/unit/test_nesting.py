"""What is nested so deeply that it can be read alone, but not in the frames that it is to travel in."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from practicum.common.errors import InvalidArgument
from practicum.executor.dispatching.frames import check_frame
from practicum.executor.dispatching.uploads import FailedAttempt, Uploads
from practicum.executor.tasks.nesting import is_deep_task, is_deep_trajectory, padded
from practicum.executor.tasks.validation import check_body
from practicum.v1 import dispatch_pb2, executor_pb2, message_pb2, task_pb2, trajectory_pb2

DEPTHS = range(90, 100)
TASK = task_pb2.Task(id="t", instruction="x", agent=task_pb2.AgentSpec(kind="a"))


def nested(levels: int) -> bytes:
    """An unknown field of groups within groups, as short as can be."""
    return b"\x7b" * levels + b"\x7c" * levels


def is_read(read: object) -> bool:
    """Whether something can be read."""
    try:
        read()  # type: ignore[operator]
    except DecodeError:
        return False
    return True


@pytest.mark.parametrize("levels", DEPTHS)
def test_a_task_is_deep_when_no_node_could_read_it(levels: int) -> None:
    """And then its submit is refused."""
    task = task_pb2.Task.FromString(TASK.SerializeToString() + nested(levels))
    frame = dispatch_pb2.ConnectResponse(assignments=[dispatch_pb2.Assignment(task=task)]).SerializeToString()
    readable = is_read(lambda: dispatch_pb2.ConnectResponse.FromString(frame))
    assert is_deep_task(task.SerializeToString()) is not readable
    if readable:
        check_body(0, task.SerializeToString())
    else:
        with pytest.raises(InvalidArgument, match="deeply"):
            check_body(0, task.SerializeToString())


@pytest.mark.parametrize("levels", DEPTHS)
def test_every_message_that_a_node_brought_can_be_read_in_a_journal(levels: int) -> None:
    """Whatever else its frame had in it."""
    message = message_pb2.Message.FromString(message_pb2.Message(id="m").SerializeToString() + nested(levels))
    brought = dispatch_pb2.ConnectRequest(messages=[message])
    check_frame(brought)
    assignment = dispatch_pb2.Assignment(journal=brought.messages)
    frame = dispatch_pb2.ConnectResponse(assignments=[assignment]).SerializeToString()
    assert dispatch_pb2.ConnectResponse.FromString(frame).assignments[0].journal[0].id == "m"


@pytest.mark.parametrize("levels", DEPTHS)
def test_a_trajectory_is_deep_when_no_consumer_could_read_it(levels: int) -> None:
    """And then its attempt has failed."""
    body = trajectory_pb2.Trajectory(
        rollout_id="t/0", task_id="t", group_id="t", attempt=1
    ).SerializeToString() + nested(levels)
    trajectory = trajectory_pb2.Trajectory.FromString(body)
    events = [executor_pb2.TrajectoryEvent(trajectory=trajectory)]
    frame = executor_pb2.StreamTrajectoriesResponse(events=events).SerializeToString()
    readable = is_read(lambda: executor_pb2.StreamTrajectoriesResponse.FromString(frame))
    assert is_deep_trajectory(body) is not readable
    finished = dispatch_pb2.Finished(lease_id="l", rollout_id="t/0", trajectory=body)
    if readable:
        assert Uploads(lambda _: True).trajectory_of(finished, task_id="t", attempt=1) == (trajectory, body)
    else:
        with pytest.raises(FailedAttempt) as caught:
            Uploads(lambda _: True).trajectory_of(finished, task_id="t", attempt=1)
        assert caught.value.error.reason == "TRAJECTORY_MALFORMED"


def test_both_sides_of_the_limit_were_tried() -> None:
    """Where protobuf counts levels otherwise, the tests above have to be looked at."""
    assert len({is_deep_task(TASK.SerializeToString() + nested(levels)) for levels in DEPTHS}) == 2


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 2**21 - 1, 2**21, 2**28 - 1, 2**28, 2**31 - 1])
def test_a_padded_varint_is_what_protobuf_reads(size: int) -> None:
    """As a number of any size."""
    assert dispatch_pb2.UploadTrajectoryResponse.FromString(b"\x08" + padded(size)).size_bytes == size
