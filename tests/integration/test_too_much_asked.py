"""Requests that ask for more than is looked for: refused by name, whatever the call."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest
from support.boxes import opening
from support.executor_door import Stub, task
from support.executor_door import executor as executor
from support.executor_door import stub as stub
from support.saying import refused

from practicum.v1 import executor_pb2 as e
from practicum.v1 import message_pb2

LONG = "ü\n" * 10_000
MANY = [f"q{index}" for index in range(1_001)]
LABELS = dict.fromkeys(MANY[:101], "x")
Filter = e.TrajectoryFilter


def opened(stub: Stub, **asked: object) -> object:
    """The first frame of a consumer with this filter."""
    return next(
        stub.StreamTrajectories(opening(e.OpenConsumer(consumer="c", filter=Filter(**asked))), timeout=20)  # type: ignore[arg-type]
    )


def queried(stub: Stub, **asked: object) -> object:
    """All that is stored and meets this filter."""
    return list(stub.QueryTrajectories(e.QueryTrajectoriesRequest(filter=Filter(**asked)), timeout=20))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        (lambda s: opened(s, queues=MANY, labels=LABELS), ["open.filter.labels", "open.filter.queues"]),
        (lambda s: opened(s, outcomes=[1] * 101), ["open.filter.outcomes"]),
        (lambda s: queried(s, queues=MANY, outcomes=[1] * 101), ["filter.outcomes", "filter.queues"]),
        (lambda s: queried(s, labels=LABELS), ["filter.labels"]),
        (lambda s: s.ListTasks(e.ListTasksRequest(labels=LABELS)), ["labels"]),
        (lambda s: s.CancelTasks(e.CancelTasksRequest(labels=LABELS)), ["labels"]),
        (lambda s: s.SubmitTasks(e.SubmitTasksRequest(request_id="x" * 257, tasks=[task("t")])), ["request_id"]),
        (lambda s: s.CancelTasks(e.CancelTasksRequest(task_ids=["t"], reason="x" * 4_097)), ["reason"]),
        (lambda s: s.RequeueTasks(e.RequeueTasksRequest(labels=LABELS)), ["labels"]),
    ],
)
def test_a_filter_that_is_too_long_is_refused(stub: Stub, call: Callable[[Stub], object], fields: list[str]) -> None:
    """Each result is compared with it: 200,000 queues stopped everything else for five seconds."""
    with pytest.raises(grpc.RpcError) as error:
        call(stub)
    assert refused(error.value) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", fields)


def test_a_long_filter_is_compared_quickly(stub: Stub) -> None:
    """As many as are allowed."""
    assert queried(stub, queues=MANY[:1_000], labels=dict.fromkeys(MANY[:100], "x"), outcomes=[1] * 100) == []


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda s: s.GetTask(e.GetTaskRequest(task_id=LONG)), "TASK_UNKNOWN"),
        (lambda s: s.DrainNode(e.DrainNodeRequest(node_id=LONG)), "NODE_UNKNOWN"),
        (lambda s: next(s.WatchSession(e.WatchSessionRequest(session_id=LONG))), "SESSION_UNKNOWN"),
        (lambda s: next(s.Subscribe(e.SubscribeRequest(session_id=LONG, receiver="me"))), "SESSION_UNKNOWN"),
        (
            lambda s: s.SendMessage(e.SendMessageRequest(message=message_pb2.Message(session_id=LONG, sender="me"))),
            "SESSION_UNKNOWN",
        ),
    ],
)
def test_what_is_refused_is_told_however_long_its_name_is(
    stub: Stub, call: Callable[[Stub], object], reason: str
) -> None:
    """The name is in the answer's trailer, and gRPC drops one that is too long."""
    with pytest.raises(grpc.RpcError) as error:
        call(stub)
    assert refused(error.value) == (grpc.StatusCode.NOT_FOUND, reason, [])
