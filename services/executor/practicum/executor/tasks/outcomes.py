"""How rollouts ended: as their nodes tell it, or as the executor does when no node could end them."""

from __future__ import annotations

from typing import NamedTuple

from practicum.executor.scheduling.scheduler import Rollout
from practicum.v1 import message_pb2, task_pb2, trajectory_pb2


class Ended(NamedTuple):
    """A rollout that the scheduler has let go, with its serialized Trajectory."""

    rollout: Rollout
    outcome: int
    reward: float
    body: bytes


def ended_here(
    rollout: Rollout, task: task_pb2.Task, outcome: trajectory_pb2.Outcome.ValueType, error: message_pb2.ErrorPayload
) -> Ended:
    """The rollout's end as the executor tells it, without steps or tokens."""
    trajectory = trajectory_pb2.Trajectory(
        task_id=task.id,
        rollout_id=rollout.rollout_id,
        group_id=task.id,
        attempt=rollout.attempt,
        outcome=outcome,
        error=error,
        labels=task.labels,
        metadata_json=task.metadata_json,
        instruction=task.instruction,
        environment=task.environment.name,
        agent=task.agent,
    )
    trajectory.finished_at.GetCurrentTime()
    return Ended(rollout, outcome, 0.0, trajectory.SerializeToString())
