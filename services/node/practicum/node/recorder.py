"""What happened in a rollout: its steps for the trajectory, and its Messages for the journal."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from practicum.common.tracing import current
from practicum.node.deadline import duration_of
from practicum.v1 import message_pb2, trajectory_pb2

# Headers of the Messages that tell of a step, so that a further attempt can tell steps from what agents say.
STEP = "step"
MODEL_SECONDS = "model_seconds"
TOKENS = "tokens"
TOOL_SECONDS = "tool_seconds"


@dataclass(slots=True)
class Recorder:
    """Steps and Messages of one attempt. `tell` sends a Message on its way as it happens."""

    session_id: str
    attempt: int
    tell: Callable[[message_pb2.Message], None]
    steps: list[trajectory_pb2.Step] = field(default_factory=list)
    started: float = field(default_factory=time.time)

    def say(self, category: str, sender: str, **fields: object) -> message_pb2.Message:
        """Journals one Message; `fields` are the others of its fields, by name."""
        message = message_pb2.Message(
            id=uuid.uuid4().hex,
            session_id=self.session_id,
            sender=sender,
            category=category,
            attempt=self.attempt,
            **({"traceparent": current()} | fields),  # type: ignore[arg-type]
        )
        message.timestamp.GetCurrentTime()
        self.tell(message)
        return message

    def act(
        self, agent_id: str, action: message_pb2.Action, *, model_seconds: float | None = None, tokens: int = 0
    ) -> None:
        """An agent's step begins with its action. `model_seconds`: None when no model made it; `tokens`: those of the
        conversation then."""
        spent = model_seconds or 0.0
        step = trajectory_pb2.Step(agent_id=agent_id, action=action, model_time=duration_of(spent))
        step.started_at.FromNanoseconds(int((time.time() - spent) * 1e9))
        headers = {STEP: str(len(self.steps))}
        if model_seconds is not None:
            headers |= {MODEL_SECONDS: f"{model_seconds:.6f}", TOKENS: str(tokens)}
        self.steps.append(step)
        self.say("action" if action.tool_calls else "answer", agent_id, headers=headers, action=action)

    def observe(self, tool: str, observation: message_pb2.Observation, *, tool_seconds: float | None) -> None:
        """What came back within the present step. `tool_seconds`: None when no tool was called."""
        step, headers = self.steps[-1], {STEP: str(len(self.steps) - 1)}
        step.observations.append(observation)
        if tool_seconds is not None:
            step.tool_time.FromNanoseconds(step.tool_time.ToNanoseconds() + int(tool_seconds * 1e9))
            headers[TOOL_SECONDS] = f"{tool_seconds:.6f}"
        self.say("observation", tool, headers=headers, observation=observation)
