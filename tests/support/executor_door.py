"""An executor as a real process, its calls, and tasks for nodes that do what the test says."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from support.boxes import door
from support.services import Service, Services

from practicum.v1 import executor_pb2_grpc, message_pb2, task_pb2

Stub = executor_pb2_grpc.ExecutorServiceStub
BROKEN = message_pb2.ErrorPayload(source=message_pb2.ERROR_SOURCE_ENVIRONMENT, reason="TOOL_SERVER_DOWN")


@pytest.fixture
def executor(services: Services) -> Service:
    """On a database of the test's own."""
    return services.executor()


@pytest.fixture
def stub(executor: Service) -> Iterator[Stub]:
    """Its calls."""
    with door(executor.address) as stub:
        yield stub


def task(task_id: str, rollouts: int = 1, **fields: object) -> task_pb2.Task:
    """One of so many rollouts."""
    agent = task_pb2.AgentSpec(kind="tool_agent")
    return task_pb2.Task(id=task_id, instruction="open box 17", agent=agent, rollouts=rollouts, **fields)


def swallow(events: Iterator[object]) -> Iterator[object]:
    """Events until the stream breaks."""
    try:
        yield from events
    except grpc.RpcError:
        return
