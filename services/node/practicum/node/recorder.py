"""What happened in a rollout: its steps for the trajectory, and its Messages for the journal."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from practicum.common.tracing import current
from practicum.node.deadline import duration_of
from practicum.v1 import message_pb2, trajectory_pb2


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

    def act(self, agent_id: str, action: message_pb2.Action, *, model_seconds: float = 0.0) -> None:
        """An agent's step begins with its action."""
        step = trajectory_pb2.Step(agent_id=agent_id, action=action, model_time=duration_of(model_seconds))
        step.started_at.FromNanoseconds(int((time.time() - model_seconds) * 1e9))
        self.steps.append(step)
        self.say("action" if action.tool_calls else "answer", agent_id, action=action)

    def observe(self, tool: str, observation: message_pb2.Observation, *, tool_seconds: float) -> None:
        """What came back within the present step."""
        step = self.steps[-1]
        step.observations.append(observation)
        step.tool_time.FromNanoseconds(step.tool_time.ToNanoseconds() + int(tool_seconds * 1e9))
        self.say("observation", tool, observation=observation)
