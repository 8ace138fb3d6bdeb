"""How things stand, as messages: tasks, queues, nodes."""

from __future__ import annotations

import time
from typing import cast

from practicum.executor.core import Executor
from practicum.executor.scheduling.nodes import Node
from practicum.executor.scheduling.scheduler import State
from practicum.executor.store.stored import StoredEnd, StoredTask
from practicum.executor.tasks.backlog import Counts, rollout_ids
from practicum.v1 import executor_pb2, task_pb2, trajectory_pb2

ENDED = {
    "done": executor_pb2.ROLLOUT_STATE_DONE,
    "cancelled": executor_pb2.ROLLOUT_STATE_CANCELLED,
    "dead": executor_pb2.ROLLOUT_STATE_DEAD,
    "overdue": executor_pb2.ROLLOUT_STATE_DONE,
}


def task_status(executor: Executor, stored: StoredTask) -> executor_pb2.TaskStatus:
    """A task without its scoring, and its rollouts."""
    task = task_pb2.Task.FromString(stored.body)
    task.ClearField("scoring")
    status = executor_pb2.TaskStatus(task=task)
    status.submitted_at.FromNanoseconds(int(stored.submitted_at * 1e9))
    ended = {end.place: end for end in stored.ended}
    for place, rollout_id in enumerate(rollout_ids(stored.task_id, stored.rollouts)):
        if place in ended:
            status.rollouts.append(ended_status(rollout_id, ended[place]))
        else:
            status.rollouts.append(open_status(executor, rollout_id))
    return status


def ended_status(rollout_id: str, end: StoredEnd) -> executor_pb2.RolloutStatus:
    """How a rollout ended."""
    return executor_pb2.RolloutStatus(
        rollout_id=rollout_id,
        state=ENDED[end.state],
        attempt=end.attempt,
        node_id=end.node_id,
        outcome=cast("trajectory_pb2.Outcome.ValueType", end.outcome),
    )


def open_status(executor: Executor, rollout_id: str) -> executor_pb2.RolloutStatus:
    """Whether a rollout that has not ended waits or runs."""
    status = executor_pb2.RolloutStatus(rollout_id=rollout_id, state=executor_pb2.ROLLOUT_STATE_RUNNING)
    rollout = executor.scheduler.rollouts.get(rollout_id)
    if rollout is None:  # It has ended, and was not on disk yet when the task was read.
        return status
    status.attempt, status.node_id = rollout.attempt, rollout.node_id or ""
    if rollout.state is not State.RUNNING:
        status.state = executor_pb2.ROLLOUT_STATE_QUEUED
    return status


def queue_stats(executor: Executor) -> list[executor_pb2.QueueStats]:
    """Counts of each queue, by name."""
    return [stats_of(executor, name, counts) for name, counts in sorted(executor.backlog.queues.items())]


def stats_of(executor: Executor, name: str, counts: Counts) -> executor_pb2.QueueStats:
    """Counts of one queue."""
    settings, now = executor.settings, executor.scheduler.queues.get(name)
    stats = executor_pb2.QueueStats(
        queue=name,
        done=counts.done,
        cancelled=counts.cancelled,
        dead=counts.dead,
        retried=counts.retried,
        weight=(settings.queue_weights or {}).get(name, 1.0),
        max_backlog=(settings.queue_limits or {}).get(name, 0),
    )
    if now is not None:
        stats.queued, stats.running = now.queued, now.running
        oldest = executor.scheduler.oldest(name)
        if oldest is not None:
            stats.oldest_age.FromNanoseconds(int((time.monotonic() - oldest) * 1e9))
    return stats


def node_info(node: Node) -> executor_pb2.NodeInfo:
    """A node as the scheduler sees it."""
    info = executor_pb2.NodeInfo(
        node_id=node.node_id,
        slots=node.slots,
        running=len(node.leases),
        load=node.load,
        labels=dict(node.labels),
        agent_kinds=sorted(node.agent_kinds),
        connected=node.connected,
        draining=node.draining,
        finished=node.finished,
    )
    info.last_seen.FromNanoseconds(int((time.time() - (time.monotonic() - node.last_seen)) * 1e9))
    return info
