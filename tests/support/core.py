"""The executor's core on a real store, without doors: tasks, a node that takes work, and results."""

from __future__ import annotations

from practicum.executor.core import Executor
from practicum.executor.dispatching.assignments import Assignments
from practicum.executor.scheduling.nodes import Node
from practicum.executor.scheduling.scheduler import Lease
from practicum.executor.store.sql import SqlStore
from practicum.executor.tasks.outcomes import Ended
from practicum.v1 import message_pb2, task_pb2, trajectory_pb2


def task(task_id: str = "", instruction: str = "open box 17", rollouts: int = 2) -> task_pb2.Task:
    """A task for the node below."""
    agent = task_pb2.AgentSpec(kind="tool_agent")
    return task_pb2.Task(id=task_id, instruction=instruction, agent=agent, rollouts=rollouts)


def node(slots: int) -> Node:
    """A node."""
    return Node("n", "1", slots, frozenset({"tool_agent"}))


def give(executor: Executor, slots: int, *, write: bool = True) -> list[Lease]:
    """Has a node of so many slots take what waits."""
    executor.scheduler.register(node(slots), [], 0.0)
    leases = executor.scheduler.dispatch(0.0)
    if write:
        Assignments(executor, {}).give(leases)
    return leases


def end(executor: Executor, *lease_ids: str) -> None:
    """The node finishes."""
    for lease_id in lease_ids:
        rollout = executor.scheduler.finish(lease_id, "n")
        assert rollout is not None
        executor.end([Ended(rollout, trajectory_pb2.OUTCOME_FINISHED, 1.0, b"")])


def die(executor: Executor, lease: Lease) -> None:
    """The last attempt fails."""
    executor.scheduler.rollouts[lease.rollout_id].max_attempts = 1
    dead = executor.scheduler.fail(lease.lease_id, "n", 0.0)
    assert dead is not None
    executor.end_here([dead], trajectory_pb2.OUTCOME_INFRASTRUCTURE_ERROR, message_pb2.ErrorPayload())


def open_tasks(store: SqlStore) -> set[str]:
    """Tasks that have not ended, on disk."""
    return {stored.task_id for stored in store.open_tasks()}
