"""`practicum dead-letters`: rollouts whose attempts were used up, and the way back for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from practicum.cli.screen import console
from practicum.cli.tables import table
from practicum.client import ExecutorClient
from practicum.v1 import executor_pb2, trajectory_pb2

DEAD = executor_pb2.ROLLOUT_STATE_DEAD


def dead_letters(address: str, *, labels: Mapping[str, str], requeue: bool) -> None:
    """Lists them with why they died; puts them back if asked."""
    with ExecutorClient(address) as executor:
        tasks = list(executor.tasks(labels=labels, states=[DEAD]))
        if not tasks:
            console.print("no dead letters")
        elif requeue:
            count = executor.requeue([status.task.id for status in tasks])
            console.print(f"{count} rollouts of {len(tasks)} tasks are queued again")
        else:
            show(executor, tasks)


def show(executor: ExecutorClient, tasks: list[executor_pb2.TaskStatus]) -> None:
    """A line for each."""
    rollouts = [rollout for status in tasks for rollout in status.rollouts if rollout.state == DEAD]
    errors = dict(errors_of(executor, [rollout.rollout_id for rollout in rollouts]))
    made = table("rollout", "#attempts", "node", "error")
    for rollout in rollouts:
        made.add_row(rollout.rollout_id, str(rollout.attempt), rollout.node_id, errors.get(rollout.rollout_id, ""))
    console.print(made)


def errors_of(executor: ExecutorClient, rollout_ids: list[str]) -> Iterator[tuple[str, str]]:
    """Why rollouts died, as far as their trajectories are kept."""
    for trajectory in executor.query(rollout_ids=rollout_ids[:1_000]):
        yield trajectory.rollout_id, reason_of(trajectory)


def reason_of(trajectory: trajectory_pb2.Trajectory) -> str:
    """The last attempt's error in a line."""
    return f"{trajectory.error.reason}: {trajectory.error.detail}"[:100]
