"""Trajectories of rollouts that no node could end: cancelled, out of time, or out of attempts."""

from __future__ import annotations

from practicum.executor.changes import EndedRollout
from practicum.executor.scheduler import Rollout
from practicum.v1 import message_pb2, task_pb2, trajectory_pb2


def ended_here(
    rollout: Rollout, task: task_pb2.Task, outcome: trajectory_pb2.Outcome.ValueType, error: message_pb2.ErrorPayload
) -> EndedRollout:
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
    return ended(rollout, trajectory, trajectory.SerializeToString())


def ended(rollout: Rollout, trajectory: trajectory_pb2.Trajectory, body: bytes) -> EndedRollout:
    """The rollout's end as its trajectory tells it."""
    outcome, reward = trajectory.outcome, trajectory.reward
    return EndedRollout(rollout.rollout_id, rollout.task_id, rollout.state.value, outcome, reward, body)
