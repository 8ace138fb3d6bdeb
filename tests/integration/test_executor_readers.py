"""What the executor tells its readers: a real process, with nodes that do what the test says."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

import grpc
import pytest
from support.boxes import door, opening, stream, submit, trajectories
from support.executor_door import Stub, swallow, task
from support.executor_door import executor as executor
from support.executor_door import stub as stub
from support.scripted_node import ScriptedNode, trajectory_of
from support.services import Service

from practicum.v1 import dispatch_pb2, executor_pb2, trajectory_pb2


def test_a_trajectory_comes_back_with_its_group(executor: Service, stub: Stub) -> None:
    """Results first, then the news that the group is complete; counted in the queue."""
    node = ScriptedNode(executor.address)
    submit(stub, [task("t", 2, queue="q", labels={"stage": "rl"})])
    for assignment in node.assignments(2):
        node.finish(assignment, "42", reward=1.0)
    events = stream(stub, "reader")
    kinds = [next(events).WhichOneof("event") for _ in range(3)]
    assert kinds == ["trajectory", "trajectory", "group_complete"]
    (stats,) = stub.GetQueueStats(executor_pb2.GetQueueStatsRequest()).queues
    assert (stats.queue, stats.done, stats.queued, stats.running) == ("q", 2, 0, 0)
    status = stub.GetTask(executor_pb2.GetTaskRequest(task_id="t")).status
    assert [r.state for r in status.rollouts] == [executor_pb2.ROLLOUT_STATE_DONE] * 2


def test_a_consumer_goes_on_where_it_acked(executor: Service, stub: Stub) -> None:
    """Also over a kill -9 of the executor. What was not acked comes again."""
    node = ScriptedNode(executor.address)
    submit(stub, [task(f"t{i}") for i in range(3)])
    for assignment in node.assignments(3):
        node.finish(assignment)
        next(f for f in iter(node.next_frame, None) if f.acked_leases)
    ack_after(stub, "reader", 2)
    executor.kill()
    executor.launch()
    executor.wait_serving()
    with door(executor.address) as again:
        rest = stream(again, "reader")
        assert [next(rest).trajectory.rollout_id, next(rest).group_complete.group_id] == ["t1/0", "t1"]


def ack_after(stub: Stub, name: str, count: int) -> None:
    """Reads so many events and acks them, and nothing after."""
    done = threading.Event()
    cursors: list[int] = []

    def requests() -> Iterator[executor_pb2.StreamTrajectoriesRequest]:
        yield executor_pb2.StreamTrajectoriesRequest(open=executor_pb2.OpenConsumer(consumer=name, credits=count))
        assert done.wait(20)
        yield executor_pb2.StreamTrajectoriesRequest(ack=executor_pb2.AckCursor(cursor=cursors[-1]))

    for response in stub.StreamTrajectories(requests(), timeout=20):
        cursors += [event.cursor for event in response.events]
        if len(cursors) == count:
            done.set()
    assert len(cursors) == count, "credits were given for no more"


def test_a_filter_keeps_what_is_not_wanted_away(executor: Service, stub: Stub) -> None:
    """By label, outcome and reward."""
    node = ScriptedNode(executor.address)
    submit(stub, [task("a", labels={"stage": "sft"}), task("b", labels={"stage": "sft"}), task("c")])
    for assignment in node.assignments(3):
        node.finish(assignment, reward=1.0 if assignment.task.id == "b" else 0.0)
    trajectories(stub, 3, name="all")
    wanted = executor_pb2.TrajectoryFilter(labels={"stage": "sft"}, min_reward=0.5)
    found = stub.QueryTrajectories(executor_pb2.QueryTrajectoriesRequest(filter=wanted))
    assert [e.trajectory.task_id for response in found for e in response.events] == ["b"]


def test_a_newer_stream_of_a_consumer_ends_the_older(stub: Stub) -> None:
    """Two readers of one name would take each other's events."""
    older = stub.StreamTrajectories(opening(executor_pb2.OpenConsumer(consumer="reader")), timeout=20)
    newer = stream(stub, "reader")
    threading.Thread(target=lambda: list(swallow(newer)), daemon=True).start()
    with pytest.raises(grpc.RpcError) as caught:
        next(older)
    assert caught.value.code() is grpc.StatusCode.ABORTED


def test_wrong_queries_are_refused(stub: Stub) -> None:
    """With the field that is wrong."""
    for call, request in (
        (stub.ListTasks, executor_pb2.ListTasksRequest(page_token="9" * 25)),
        (stub.ListTasks, executor_pb2.ListTasksRequest(page_size=-1)),
        (lambda r: next(stub.QueryTrajectories(r)), executor_pb2.QueryTrajectoriesRequest(limit=-1)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call(request)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_journal_is_watched_while_it_grows(executor: Service, stub: Stub) -> None:
    """In order, without repeats, until the session ends."""
    node = ScriptedNode(executor.address)
    submit(stub, [task("t")])
    (assignment,) = node.assignments(1)
    node.say(assignment, "one", "two")
    watch = stub.WatchSession(executor_pb2.WatchSessionRequest(session_id="t/0"), timeout=20)
    said = [(m.id, m.sequence) for m in next(watch).messages]
    node.say(assignment, "two", "three")
    node.finish(assignment)
    said += [(m.id, m.sequence) for response in watch for m in response.messages]
    assert said == [("one", 1), ("two", 2), ("three", 3)]


@pytest.mark.parametrize("size", [300_000, 3_000_000])
def test_a_large_trajectory_is_uploaded_and_read_in_parts(executor: Service, stub: Stub, size: int) -> None:
    """Above 256 KiB it is uploaded, above 1 MiB it is read in parts too."""
    node = ScriptedNode(executor.address)
    submit(stub, [task("t")])
    (assignment,) = node.assignments(1)
    body = trajectory_of(assignment, final_answer="x" * size)
    digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
    half = len(body) // 2
    upload = dispatch_pb2.UploadTrajectoryRequest
    parts = [upload(lease_id=assignment.lease_id, digest=digest, data=body[:half]), upload(data=body[half:])]
    assert node.stub.UploadTrajectory(iter(parts)).size_bytes == len(body)
    node.bring(assignment, trajectory_digest=digest)
    read = b""
    for event in stream(stub, "reader"):
        if event.HasField("group_complete"):
            break
        read += event.part.data if event.HasField("part") else event.trajectory.SerializeToString()
    assert trajectory_pb2.Trajectory.FromString(read).final_answer == "x" * size
