"""Makes the trajectory of an attempt."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from practicum.node.deadline import duration_of
from practicum.node.graphs import joined
from practicum.node.recorder import Recorder
from practicum.v1 import dispatch_pb2, message_pb2, trajectory_pb2

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
FULL_REWARD = 1.0


@dataclass(slots=True)
class Ending:
    """How an attempt ended. `answer` is the agent's whole last text."""

    outcome: trajectory_pb2.Outcome.ValueType
    answer: str = ""
    error: message_pb2.ErrorPayload | None = None
    reward: float = 0.0
    reward_parts: dict[str, float] = field(default_factory=dict)
    tools_json: str = ""


def make_trajectory(
    assignment: dispatch_pb2.Assignment,
    recorder: Recorder,
    ending: Ending,
    *,
    graphs: Sequence[trajectory_pb2.TokenGraph],
    node_id: str,
) -> trajectory_pb2.Trajectory:
    """Everything that is known of the attempt."""
    task, now = assignment.task, time.time()
    versions = list(policy_versions(graphs))
    trajectory = trajectory_pb2.Trajectory(
        task_id=task.id,
        rollout_id=assignment.rollout_id,
        group_id=assignment.group_id,
        attempt=assignment.attempt,
        steps=recorder.steps,
        final_answer=final_answer(ending.answer),
        success=ending.reward >= FULL_REWARD,
        reward=ending.reward,
        reward_parts=ending.reward_parts,
        token_count=sum(len(node.token_ids) // 4 for graph in graphs for node in graph.nodes),
        execution_time=duration_of(now - recorder.started),
        outcome=ending.outcome,
        error=ending.error,
        token_graphs=joined(graphs),
        node_id=node_id,
        min_policy_version=min(versions, default=0),
        max_policy_version=max(versions, default=0),
        labels=task.labels,
        metadata_json=task.metadata_json,
        instruction=task.instruction,
        environment=task.environment.name,
        agent=task.agent,
        tools_json=ending.tools_json,
    )
    trajectory.started_at.FromNanoseconds(int(recorder.started * 1e9))
    trajectory.finished_at.FromNanoseconds(int(now * 1e9))
    return trajectory


def final_answer(text: str) -> str:
    """What stands in the last `<answer>` tags; without tags the whole text."""
    tagged = ANSWER.findall(text)
    return (tagged[-1] if tagged else text).strip()


def policy_versions(graphs: Sequence[trajectory_pb2.TokenGraph]) -> Iterator[int]:
    """The versions that sampled tokens of graphs."""
    for graph in graphs:
        for node in graph.nodes:
            for span in node.version_spans:
                yield span.version
