"""What earlier attempts at a rollout did, as its journal tells. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from practicum.node.recorder import MODEL_SECONDS, STEP, TOKENS, TOOL_SECONDS
from practicum.v1 import message_pb2, trajectory_pb2


@dataclass(slots=True)
class Past:
    """Steps since the last attempt that began anew. What was done last may be missing: Messages travel behind deeds."""

    steps: list[trajectory_pb2.Step] = field(default_factory=list)
    turns: dict[int, int] = field(default_factory=dict)
    """How many steps a model made, by attempt."""
    calls: int = 0
    """Calls of which the environment's result is told."""
    tokens: int = 0
    """Those of the conversation, after the model's last turn."""

    @property
    def pending(self) -> list[message_pb2.ToolCall]:
        """The last step's calls whose results are not told. They may have been made."""
        if not self.steps:
            return []
        last = self.steps[-1]
        return list(last.action.tool_calls[len(last.observations) :])

    def fits(self, calls: int) -> bool:
        """Whether an environment in which so many calls were made has seen these steps, and nothing else."""
        return self.calls <= calls <= self.calls + len(self.pending)


def past_of(journal: Iterable[message_pb2.Message]) -> Past | None:
    """Returns None when there is nothing to go on from, or the journal doesn't tell it whole."""
    past = Past()
    for message in journal:
        if message.attempt and message.category == "task":
            past = Past()
        elif message.attempt and STEP in message.headers:
            try:
                add(past, message)
            except ValueError:
                return None
    return past if past.steps else None


def add(past: Past, message: message_pb2.Message) -> None:
    """Adds what a Message tells of a step. ValueError: something before it is missing, or was done side by side."""
    step, pending = int(message.headers[STEP]), past.pending
    match message.WhichOneof("payload"):
        case "action":
            if step != len(past.steps) or pending:
                raise ValueError("an action out of line")
            past.steps.append(step_of(message))
            if MODEL_SECONDS in message.headers:
                past.turns[message.attempt] = past.turns.get(message.attempt, 0) + 1
                past.tokens = int(message.headers.get(TOKENS, "0"))
        case "observation":
            if step != len(past.steps) - 1 or not pending or pending[0].call_id != message.observation.call_id:
                raise ValueError("an observation out of line")
            observe(past.steps[-1], message)
            past.calls += TOOL_SECONDS in message.headers


def step_of(message: message_pb2.Message) -> trajectory_pb2.Step:
    """A step as its action was told."""
    step = trajectory_pb2.Step(agent_id=message.sender, action=message.action)
    step.model_time.FromNanoseconds(nanoseconds(message.headers.get(MODEL_SECONDS, "0")))
    step.started_at.FromNanoseconds(message.timestamp.ToNanoseconds() - step.model_time.ToNanoseconds())
    return step


def observe(step: trajectory_pb2.Step, message: message_pb2.Message) -> None:
    """Adds what came of one of its calls."""
    step.observations.append(message.observation)
    spent = nanoseconds(message.headers.get(TOOL_SECONDS, "0"))
    step.tool_time.FromNanoseconds(step.tool_time.ToNanoseconds() + spent)


def nanoseconds(seconds: str) -> int:
    """Seconds as a header tells them."""
    return int(float(seconds) * 1e9)
