"""What travels: an instruction of 200 bytes in, a result of about 300 bytes out; or a whole conversation."""

from __future__ import annotations

from collections.abc import Iterator

from practicum.v1 import dispatch_pb2, message_pb2, task_pb2, trajectory_pb2

EMPTY, WHOLE = "empty", "whole"
"""Kinds of agents: one that does nothing, and one that says 20 messages and brings 8,192 tokens back."""
INSTRUCTION = "i" * 200
RESULT = "r" * 200
MESSAGES = 20
TOKENS = 8192
TEXT = "m" * 400

TOKEN_IDS = bytes(4 * TOKENS // MESSAGES)
TOKEN_NODES = [
    trajectory_pb2.TokenNode(
        parent=index - 1 if index else None,
        role=trajectory_pb2.TOKEN_ROLE_SAMPLED if index % 2 else trajectory_pb2.TOKEN_ROLE_TOOL,
        token_ids=TOKEN_IDS,
        logprobs=TOKEN_IDS if index % 2 else b"",
        version_spans=[trajectory_pb2.VersionSpan(version=1, end=TOKENS // MESSAGES)] if index % 2 else [],
    )
    for index in range(MESSAGES)
]
CALL = message_pb2.ToolCall(call_id="c1", name="box__open", arguments_json='{"id": 1}')
STEPS = (
    MESSAGES
    // 2
    * [
        trajectory_pb2.Step(
            agent_id="agent",
            action=message_pb2.Action(text=TEXT, tool_calls=[CALL]),
            observations=[message_pb2.Observation(call_id="c1", text=TEXT)],
        )
    ]
)


TASKS = {kind: task_pb2.Task(instruction=INSTRUCTION, agent=task_pb2.AgentSpec(kind=kind)) for kind in (EMPTY, WHOLE)}


def task(task_id: str, kind: str = EMPTY) -> task_pb2.Task:
    """One rollout."""
    made = task_pb2.Task()
    made.CopyFrom(TASKS[kind])
    made.id = task_id
    return made


def finished(assignment: dispatch_pb2.Assignment) -> dispatch_pb2.Finished:
    """The result of an assignment."""
    trajectory = trajectory_pb2.Trajectory(
        rollout_id=assignment.rollout_id,
        task_id=assignment.task.id,
        group_id=assignment.group_id,
        attempt=assignment.attempt,
        outcome=trajectory_pb2.OUTCOME_FINISHED,
        final_answer=RESULT,
        reward=1.0,
    )
    if assignment.task.agent.kind == WHOLE:
        graph = trajectory_pb2.TokenGraph(agent_id="agent", nodes=TOKEN_NODES)
        trajectory.MergeFrom(trajectory_pb2.Trajectory(steps=STEPS, token_graphs=[graph], token_count=TOKENS))
    return dispatch_pb2.Finished(
        lease_id=assignment.lease_id, rollout_id=assignment.rollout_id, trajectory=trajectory.SerializeToString()
    )


def messages(assignment: dispatch_pb2.Assignment) -> Iterator[message_pb2.Message]:
    """What is said in a whole conversation."""
    for index in range(MESSAGES):
        yield message_pb2.Message(
            id=f"{assignment.rollout_id}-{assignment.attempt}-{index}",
            session_id=assignment.rollout_id,
            sender="agent",
            category="observation" if index % 2 else "action",
            attempt=assignment.attempt,
            observation=message_pb2.Observation(text=TEXT),
        )
