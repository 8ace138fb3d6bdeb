"""What the executor logs: one event for what happens, with the ids that tell to what."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from support.commands import wait_for
from support.scripted_node import ScriptedNode
from support.services import Service, Services

from practicum.client import AgentSpec, ExecutorClient, Task
from practicum.v1 import executor_pb2, executor_pb2_grpc, message_pb2, task_pb2

Event = dict[str, Any]


@pytest.fixture
def executor(services: Services) -> Service:
    return services.executor("--log-level", "debug")


@pytest.fixture
def client(executor: Service) -> Iterator[ExecutorClient]:
    with ExecutorClient(executor.address) as client:
        yield client


def a_task(task_id: str, *, rollouts: int = 1) -> Task:
    """One that is tried twice."""
    retry = task_pb2.RetryPolicy(max_attempts=2)
    agent = AgentSpec(kind="tool_agent")
    return Task(id=task_id, instruction="a secret", agent=agent, rollouts=rollouts, retry=retry)


def events(service: Service, name: str) -> list[Event]:
    """All of this name."""
    return [event for line in service.text.splitlines() if (event := json.loads(line))["event"] == name]


def wait_for_events(service: Service, name: str, count: int = 1) -> list[Event]:
    """So many of this name."""
    wait_for(lambda: len(events(service, name)) >= count)
    return events(service, name)


def test_a_rollouts_life_is_told_with_its_ids(executor: Service, client: ExecutorClient) -> None:
    """Accepted, assigned, failed, assigned again, ended; of a request one line, not one of each task."""
    client.submit([a_task("a"), a_task("b", rollouts=2)])
    (accepted,) = wait_for_events(executor, "tasks_accepted")
    assert (accepted["tasks"], accepted["rollouts"]) == (2, 3) and accepted["request_id"]
    node = ScriptedNode(executor.address, "n1", slots=1)
    (first,) = node.assignments(1)
    error = message_pb2.ErrorPayload(reason="TOOL_DOWN", detail="a secret of the tool")
    node.bring(first, infrastructure_error=error)
    (failed,) = wait_for_events(executor, "attempt_failed")
    ids = {"rollout_id": "a/0", "task_id": "a", "attempt": 1, "lease_id": first.lease_id, "node_id": "n1"}
    assert ids.items() <= failed.items() and failed["reason"] == "TOOL_DOWN" and not failed["last"]
    while (given := node.assignments(1)[0]).rollout_id != "a/0":
        node.finish(given)
    node.finish(given)
    wait_for_events(executor, "rollout_ended", 1)
    wait_for(lambda: any(event["task_id"] == "a" for event in events(executor, "rollout_ended")))
    (ended,) = (event for event in events(executor, "rollout_ended") if event["task_id"] == "a")
    assert (ids | {"attempt": 2, "lease_id": given.lease_id, "outcome": "finished"}).items() <= ended.items()
    assigned = [event["lease_id"] for event in events(executor, "attempt_assigned")]
    assert assigned[0] == first.lease_id and given.lease_id in assigned
    node.close()
    assert "secret" not in executor.text


def test_nodes_and_their_leases(executor: Service, client: ExecutorClient) -> None:
    """Connected, draining, what was lost and how, disconnected."""
    client.submit([a_task("a")])
    node = ScriptedNode(executor.address, "n1")
    (lost,) = node.assignments(1)
    node.close()
    again = ScriptedNode(executor.address, "n1", incarnation="2", held=(lost.lease_id,))
    (failed,) = wait_for_events(executor, "attempt_failed")
    assert (failed["reason"], failed["lease_id"], failed["node_id"]) == ("LEASE_LOST", lost.lease_id, "n1")
    (told,) = wait_for_events(executor, "leases_lost")
    assert (told["node_id"], told["count"], told["lease_ids"]) == ("n1", 1, [lost.lease_id])
    with grpc.insecure_channel(executor.address) as channel:
        executor_pb2_grpc.ExecutorServiceStub(channel).DrainNode(executor_pb2.DrainNodeRequest(node_id="n1"))
    again.send(draining=True)
    again.close()
    wait_for_events(executor, "node_disconnected", 2)
    assert [event["slots"] for event in events(executor, "node_connected")] == [4, 4]
    assert len(events(executor, "node_draining")) == 1


def test_consumers_come_and_go(executor: Service, client: ExecutorClient) -> None:
    """With their cursors."""
    client.submit([a_task("a")])
    node = ScriptedNode(executor.address, "n1")
    node.finish(node.assignments(1)[0])
    assert [trajectory.task_id for trajectory in client.trajectories("me", limit=1)] == ["a"]
    (opened,), (closed,) = wait_for_events(executor, "consumer_opened"), wait_for_events(executor, "consumer_closed")
    assert (opened["consumer"], opened["cursor"]) == ("me", 0)
    assert closed["consumer"] == "me" and closed["cursor"] > 0
    node.close()


def test_a_restart_tells_what_it_found(executor: Service, client: ExecutorClient) -> None:
    """And a cancel what it cancelled."""
    client.submit([a_task("a", rollouts=3), a_task("b")])
    client.cancel(["b", "unheard-of"])
    (cancelled,) = wait_for_events(executor, "tasks_cancelled")
    assert (cancelled["tasks"], cancelled["rollouts"], cancelled["unknown"]) == (2, 1, 1)
    executor.kill()
    executor.launch()
    executor.wait_serving()
    (recovered,) = events(executor, "recovered")
    assert (recovered["tasks"], recovered["rollouts"], recovered["leases"]) == (1, 3, 0)


def test_an_ordinary_log_has_no_line_for_each_rollout(services: Services) -> None:
    """Only who asks for detail pays for it."""
    executor = services.executor()
    node = ScriptedNode(executor.address, "n1")
    with ExecutorClient(executor.address) as client:
        client.submit([a_task("a", rollouts=4)])
        for assignment in node.assignments(4):
            node.finish(assignment)
        assert len(list(client.trajectories("me", limit=4))) == 4
    node.close()
    assert len(events(executor, "tasks_accepted")) == 1
    assert not events(executor, "rollout_ended") and not events(executor, "attempt_assigned")
