"""The executor as a real process, with nodes that do what the test says."""

from __future__ import annotations

import resource
import threading

import grpc
import pytest
from support.boxes import stream, submit, trajectories
from support.executor_door import BROKEN, Stub, swallow, task
from support.executor_door import executor as executor
from support.executor_door import stub as stub
from support.scripted_node import ScriptedNode, trajectory_of
from support.services import Service

from practicum.v1 import dispatch_pb2, executor_pb2, task_pb2, trajectory_pb2


def test_rollouts_go_to_the_least_loaded_node(executor: Service, stub: Stub) -> None:
    """Load is what runs by what can run."""
    large, small = ScriptedNode(executor.address, "large", slots=6), ScriptedNode(executor.address, "small", slots=2)
    submit(stub, [task("t", 4)])
    assert len(large.assignments(3)) == 3
    assert len(small.assignments(1)) == 1
    nodes = {n.node_id: n for n in stub.ListNodes(executor_pb2.ListNodesRequest()).nodes}
    assert (nodes["large"].running, nodes["small"].running) == (3, 1)
    assert (nodes["large"].load, nodes["small"].load) == (0.5, 0.5)


def test_a_late_result_of_a_lost_lease_is_refused(executor: Service, stub: Stub) -> None:
    """A node that was silent for too long has lost its rollout to the other."""
    first = ScriptedNode(executor.address, "first")
    submit(stub, [task("t")])
    (lost,) = first.assignments(1)
    with first.beating():  # It is heard, and does not say that it works on anything.
        second = ScriptedNode(executor.address, "second")
        with second.beating():
            (given,) = second.assignments(1)
        assert given.attempt == 2
        first.finish(lost, "too late")
        assert list(next(f for f in iter(first.next_frame, None) if f.lost_leases).lost_leases) == [lost.lease_id]
    second.finish(given, "in time")
    assert [t.final_answer for t in trajectories(stub, 1)] == ["in time"]


def test_infrastructure_errors_are_tried_again_until_attempts_are_used_up(executor: Service, stub: Stub) -> None:
    """Then the rollout ends with the error, and no reward is made of it."""
    node = ScriptedNode(executor.address)
    submit(stub, [task("t", retry=task_pb2.RetryPolicy(max_attempts=2))])
    for expected in (1, 2):
        (assignment,) = node.assignments(1)
        assert assignment.attempt == expected
        node.bring(assignment, infrastructure_error=BROKEN)
    (dead,) = trajectories(stub, 1)
    assert dead.outcome == trajectory_pb2.OUTCOME_INFRASTRUCTURE_ERROR
    assert dead.error.reason == "TOOL_SERVER_DOWN"


def test_a_result_beside_a_last_failure_survives_a_cut_stream(executor: Service, stub: Stub) -> None:
    """Both come in one frame, and the node is gone before either is on disk."""
    node = ScriptedNode(executor.address)
    submit(stub, [task("good"), task("bad", retry=task_pb2.RetryPolicy(max_attempts=1))])
    good, bad = node.assignments(2)
    body = trajectory_of(good, final_answer="42")
    results = [
        dispatch_pb2.Finished(lease_id=bad.lease_id, rollout_id=bad.rollout_id, infrastructure_error=BROKEN),
        dispatch_pb2.Finished(lease_id=good.lease_id, rollout_id=good.rollout_id, trajectory=body),
    ]
    node.send(finished=results)
    node.send(register=dispatch_pb2.Register())  # Ignored; once it is read, the frame before it is being kept.
    node.half_close()
    assert {t.final_answer for t in trajectories(stub, 2)} == {"42", ""}


def test_a_result_that_makes_no_sense_is_a_failed_attempt(executor: Service, stub: Stub) -> None:
    """And the store goes on."""
    node = ScriptedNode(executor.address)
    submit(stub, [task("t")])
    (first,) = node.assignments(1)
    node.finish(first, reward=float("nan"))
    (second,) = node.assignments(1)
    node.finish(second, "42")
    assert [(t.attempt, t.final_answer) for t in trajectories(stub, 1)] == [(2, "42")]


def test_cancel_reaches_the_node_and_the_consumer(executor: Service, stub: Stub) -> None:
    """One rollout runs, one waits; both end."""
    node = ScriptedNode(executor.address, slots=1)
    submit(stub, [task("t", 2)])
    (running,) = node.assignments(1)
    answer = stub.CancelTasks(executor_pb2.CancelTasksRequest(task_ids=["t"], reason="changed my mind"))
    assert answer.cancelled_rollouts == 2
    (cancel,) = next(f for f in iter(node.next_frame, None) if f.cancels).cancels
    assert (cancel.lease_id, cancel.reason) == (running.lease_id, "changed my mind")
    assert {t.outcome for t in trajectories(stub, 2)} == {trajectory_pb2.OUTCOME_CANCELLED}


def test_an_upload_that_is_wrong_or_nobodys_is_refused(executor: Service, stub: Stub) -> None:
    """What arrives is what was meant, or nothing."""
    node = ScriptedNode(executor.address)
    submit(stub, [task("t")])
    (assignment,) = node.assignments(1)
    for lease_id, code in (
        (assignment.lease_id, grpc.StatusCode.INVALID_ARGUMENT),
        ("nobody's", grpc.StatusCode.FAILED_PRECONDITION),
    ):
        part = dispatch_pb2.UploadTrajectoryRequest(lease_id=lease_id, digest="sha256:00", data=b"body")
        with pytest.raises(grpc.RpcError) as caught:
            node.stub.UploadTrajectory(iter([part]))
        assert caught.value.code() is code


def test_a_newer_process_of_a_node_ends_the_older(executor: Service, stub: Stub) -> None:
    """And what the older ran is given out again at once."""
    older = ScriptedNode(executor.address, incarnation="1")
    submit(stub, [task("t")])
    older.assignments(1)
    newer = ScriptedNode(executor.address, incarnation="2")
    assert newer.assignments(1)[0].attempt == 2
    with pytest.raises(grpc.RpcError) as caught:
        older.next_frame()
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_a_full_disk_refuses_tasks_and_keeps_what_was_accepted(executor: Service, stub: Stub) -> None:
    """The disk is full for the executor, a rollout ends meanwhile, and there is room again."""
    node = ScriptedNode(executor.address)
    submit(stub, [task("accepted")])
    (assignment,) = node.assignments(1)
    limits = resource.prlimit(executor.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    with pytest.raises(grpc.RpcError) as caught:
        submit(stub, [task("refused")])
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "nothing was taken" in (caught.value.details() or "")
    node.finish(assignment, "42")
    resource.prlimit(executor.pid, resource.RLIMIT_FSIZE, limits)
    assert [t.final_answer for t in trajectories(stub, 1)] == ["42"]


def test_neighbours_with_unknown_fields_and_enum_values_are_answered(executor: Service, stub: Stub) -> None:
    """A newer client sends what this release does not know; what it knows still counts."""
    unknown = b"\xfa\x3f\x03new"  # field 1023, three bytes
    request = executor_pb2.SubmitTasksRequest.FromString(
        executor_pb2.SubmitTasksRequest(
            tasks=[task_pb2.Task.FromString(task("t").SerializeToString() + unknown)]
        ).SerializeToString()
        + unknown
    )
    assert stub.SubmitTasks(request).tasks[0].task_id == "t"
    outcome = executor_pb2.TrajectoryFilter.FromString(b"\x18\xe7\x07")  # outcomes: 999
    assert list(stub.QueryTrajectories(executor_pb2.QueryTrajectoriesRequest(filter=outcome))) == []
    node = ScriptedNode(executor.address)
    (assignment,) = node.assignments(1)
    body = trajectory_of(assignment) + b"\x60\xe7\x07" + unknown  # outcome: 999
    node.bring(assignment, trajectory=body)
    (found,) = trajectories(stub, 1)
    assert int(found.outcome) == 999


def test_sigterm_ends_every_stream_and_the_process(executor: Service, stub: Stub) -> None:
    """Consumers and nodes are told to come back; nothing hangs."""
    ScriptedNode(executor.address)
    events = stream(stub, "reader")
    threading.Thread(target=lambda: list(swallow(events)), daemon=True).start()
    assert executor.stop(timeout=10) == 0
