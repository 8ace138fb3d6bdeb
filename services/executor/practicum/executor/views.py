"""How things stand, as messages: tasks, queues, nodes."""

from __future__ import annotations

import time
from typing import cast

from practicum.executor.backlog import queue_of
from practicum.executor.core import Executor
from practicum.executor.nodes import Node
from practicum.executor.scheduler import State
from practicum.executor.store import StoredTask
from practicum.v1 import executor_pb2, task_pb2, trajectory_pb2

ENDED = {
    "done": executor_pb2.ROLLOUT_STATE_DONE,
    "cancelled": executor_pb2.ROLLOUT_STATE_CANCELLED,
    "dead": executor_pb2.ROLLOUT_STATE_DEAD,
}


def task_status(executor: Executor, stored: StoredTask) -> executor_pb2.TaskStatus:
    """A task without its scoring, and its rollouts."""
    task = task_pb2.Task.FromString(stored.body)
    task.ClearField("scoring")
    status = executor_pb2.TaskStatus(task=task)
    status.submitted_at.FromNanoseconds(int(stored.submitted_at * 1e9))
    for rollout_id, state, attempt, node_id, outcome in stored.rollouts:
        status.rollouts.add(
            rollout_id=rollout_id,
            state=ENDED.get(state) or open_state(executor, rollout_id),
            attempt=attempt,
            node_id=node_id,
            outcome=cast("trajectory_pb2.Outcome.ValueType", outcome),
        )
    return status


def open_state(executor: Executor, rollout_id: str) -> executor_pb2.RolloutState.ValueType:
    """Whether a rollout that has not ended waits or runs."""
    rollout = executor.scheduler.rollouts.get(rollout_id)
    running = rollout is None or rollout.state is State.RUNNING  # None: it has ended, and is not on disk yet.
    return executor_pb2.ROLLOUT_STATE_RUNNING if running else executor_pb2.ROLLOUT_STATE_QUEUED


def queue_stats(executor: Executor) -> list[executor_pb2.QueueStats]:
    """Counts of each queue, by name."""
    now = time.monotonic()
    stats = {
        name: executor_pb2.QueueStats(queue=name, done=c.done, cancelled=c.cancelled, dead=c.dead, retried=c.retried)
        for name, c in executor.backlog.queues.items()
    }
    oldest: dict[str, float] = {}
    for rollout in executor.scheduler.rollouts.values():
        queue = queue_of(executor.backlog.tasks[rollout.task_id])
        if rollout.state is State.RUNNING:
            stats[queue].running += 1
        else:
            stats[queue].queued += 1
            oldest[queue] = max(oldest.get(queue, 0.0), now - rollout.queued_at)
    for queue, age in oldest.items():
        stats[queue].oldest_age.FromNanoseconds(int(age * 1e9))
    return [stats[name] for name in sorted(stats)]


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
