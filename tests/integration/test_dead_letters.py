"""Rollouts that no node could end: listed, told to readers, and put back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing

import pytest
from support.commands import PRACTICUM
from support.scripted_node import ScriptedNode
from support.services import Service, Services

from practicum.client import CallFailed, ExecutorClient, Task
from practicum.v1 import executor_pb2, message_pb2, trajectory_pb2

pytestmark = pytest.mark.processes
FAILURE = message_pb2.ErrorPayload(source=message_pb2.ERROR_SOURCE_ENVIRONMENT, reason="NO_SHELL", detail="no shell")


@pytest.fixture
def executor(services: Services) -> Service:
    return services.executor()


@pytest.fixture
def client(executor: Service) -> Iterator[ExecutorClient]:
    with ExecutorClient(executor.address) as client:
        yield client


def practicum(*arguments: str) -> str:
    """What a command prints."""
    return subprocess.run([PRACTICUM, *arguments], check=True, capture_output=True, text=True).stdout


def task(task_id: str) -> Task:
    made = Task(id=task_id, instruction="x", agent={"kind": "tool_agent"}, rollouts=2, labels={"run": "r"})
    made.retry.max_attempts = 1
    return made


def test_dead_letters_are_listed_and_put_back(executor: Service, client: ExecutorClient) -> None:
    """What is put back ends like any other, with a higher attempt; the dead letter's trajectory is gone."""
    client.submit([task("bad"), Task(id="good", instruction="x", agent={"kind": "tool_agent"})])
    node = ScriptedNode(executor.address)
    for assignment in node.assignments(3):
        if assignment.rollout_id == "good/0":
            node.finish(assignment)
        else:
            node.bring(assignment, infrastructure_error=FAILURE)
    with closing(client.trajectories("reader", limit=3)) as told:
        outcomes = {t.rollout_id: t.outcome for t in told}
    assert outcomes["bad/0"] == outcomes["bad/1"] == trajectory_pb2.OUTCOME_INFRASTRUCTURE_ERROR
    assert [s.task.id for s in client.tasks(states=[executor_pb2.ROLLOUT_STATE_DEAD])] == ["bad"]

    listed = practicum("dead-letters", "--executor", executor.address)
    assert "bad/0" in listed and "NO_SHELL: no shell" in listed and "good/0" not in listed
    assert "2 rollouts of 1 tasks" in practicum("dead-letters", "--requeue", "--executor", executor.address)
    for assignment in node.assignments(2):
        assert assignment.attempt == 2
        node.finish(assignment)
    with closing(client.trajectories("reader", limit=2)) as told:
        assert {(t.rollout_id, t.attempt, t.outcome) for t in told} == {("bad/0", 2, 1), ("bad/1", 2, 1)}
    assert len(list(client.query())) == 3
    assert "no dead letters" in practicum("dead-letters", "--executor", executor.address)
    node.close()


def test_requeue_of_what_is_unknown_or_unsaid_is_refused(client: ExecutorClient) -> None:
    """Nobody means all of them by saying nothing."""
    for wanted, reason in (({}, "INVALID_FIELD"), ({"task_ids": ["nobody"]}, "TASK_UNKNOWN")):
        with pytest.raises(CallFailed) as refused:
            client.requeue(**wanted)  # type: ignore[arg-type]
        assert refused.value.reason == reason


def test_a_rollout_that_no_node_takes_in_time_ends_with_its_deadline(client: ExecutorClient) -> None:
    """Nothing else would ever end it; no node is there at all."""
    late = Task(id="late", instruction="x", agent={"kind": "tool_agent"})
    late.limits.schedule_deadline.FromMilliseconds(200)
    client.submit([late])
    with closing(client.trajectories("reader", limit=1)) as told:
        (trajectory,) = told
    assert trajectory.outcome == trajectory_pb2.OUTCOME_DEADLINE
    assert trajectory.error.reason == "SCHEDULE_DEADLINE"
    assert client.task("late").rollouts[0].state == executor_pb2.ROLLOUT_STATE_DONE
