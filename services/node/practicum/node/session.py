"""The session that an agent is given, over a rollout's environment and model."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from practicum.node.agent import Said, Turn
from practicum.node.deadline import Deadline
from practicum.node.environment import Environment
from practicum.node.failures import LimitReached
from practicum.node.model import Model, sampling_of, tools_json
from practicum.node.past import Past
from practicum.node.post import Post
from practicum.node.recorder import Recorder
from practicum.node.tool_agent import DEFAULT_STEPS
from practicum.v1 import env_gateway_pb2, inference_pb2, message_pb2, task_pb2, trajectory_pb2

AGENT_ID = "agent"
DEFAULT_TOKENS_PER_ACTION = 256
MAX_SAID_BYTES = 1024 * 1024


class RolloutSession:
    """See `practicum.node.agent.Session`."""

    def __init__(
        self,
        task: task_pb2.AgentTask,
        *,
        environment: Environment,
        model: Model,
        recorder: Recorder,
        post: Post,
        deadline: Deadline,
        past: Past | None = None,
    ) -> None:
        self._task = task
        self._config: Mapping[str, Any] = json.loads(task.agent.config_json or "{}")
        self._environment = environment
        self._model = model
        self._recorder = recorder
        self._post = post
        self._deadline = deadline
        self._past = past or Past()
        self._step_ends = 0.0
        self._tokens = self._past.tokens
        self.tools_json = tools_json(environment.tools)

    @property
    def task(self) -> task_pb2.AgentTask:
        """What to do."""
        return self._task

    @property
    def config(self) -> Mapping[str, Any]:
        """The agent's settings."""
        return self._config

    @property
    def tools(self) -> Sequence[env_gateway_pb2.Tool]:
        """What may be called."""
        return self._environment.tools

    @property
    def past(self) -> Sequence[trajectory_pb2.Step]:
        """What an earlier attempt did."""
        return self._past.steps

    async def catch_up(self) -> None:
        """Finishes the last step of an earlier attempt: a call that was made before is answered as it was then."""
        self._recorder.steps.extend(self._past.steps)
        self._step_ends = time.monotonic() + self._deadline.for_step()
        await self.call_tools(self._past.pending)

    async def chat(self, messages: Sequence[inference_pb2.ChatMessage]) -> Turn:
        """Has the model continue; records the step."""
        self._begin_step()
        limits = self._task.limits
        began = time.monotonic()
        response = await self._model.chat(
            messages,
            tools_json=self.tools_json,
            sampling=sampling_of(self._config, max_tokens=limits.max_tokens_per_action or DEFAULT_TOKENS_PER_ACTION),
            timeout=self._left(),
        )
        self._tokens = response.usage.prompt_tokens + response.usage.sampled_tokens
        message = response.message
        action = message_pb2.Action(text=message.content, tool_calls=message.tool_calls)
        self._recorder.act(AGENT_ID, action, model_seconds=time.monotonic() - began, tokens=self._tokens)
        return Turn(message, response.finish_reason)

    async def call_tools(self, calls: Sequence[message_pb2.ToolCall]) -> list[message_pb2.Observation]:
        """Calls tools within the present step."""
        return [await self._call(call) for call in calls]

    async def act(self, text: str, calls: Sequence[message_pb2.ToolCall] = ()) -> list[message_pb2.Observation]:
        """A step without a model."""
        self._begin_step()
        self._recorder.act(AGENT_ID, message_pb2.Action(text=text, tool_calls=calls))
        return await self.call_tools(calls)

    async def receive(self, *, timeout: float | None = None) -> message_pb2.Message | None:
        """The next thing that others said."""
        return await self._post.inboxes[AGENT_ID].receive(timeout=timeout)

    def say(
        self,
        what: Said,
        *,
        to: str | None = None,
        topic: str | None = None,
        category: str = "message",
        priority: int = 0,
        headers: Mapping[str, str] | None = None,
        caller: str | None = None,
    ) -> str:
        """Says something to one receiver, or to all."""
        fields: dict[str, Any] = payload_of(what) | {
            "receiver": to,
            "topic": topic,
            "priority": priority,
            "headers": dict(headers or {}),
            "caller": caller,
        }
        if message_pb2.Message(category=category, **fields).ByteSize() > MAX_SAID_BYTES:
            raise ValueError(f"what is said is larger than {MAX_SAID_BYTES} bytes")
        if "" in (to, topic, caller):
            raise ValueError("to, topic and caller are names: leave out what is empty")
        return self._post.say(AGENT_ID, category=category, **fields).id

    def tool_call(self, name: str, arguments: Mapping[str, Any]) -> message_pb2.ToolCall:
        """A call with an id of its own."""
        return message_pb2.ToolCall(call_id=uuid.uuid4().hex, name=name, arguments_json=json.dumps(dict(arguments)))

    async def _call(self, call: message_pb2.ToolCall) -> message_pb2.Observation:
        began, spent = time.monotonic(), None
        if not any(tool.name == call.name for tool in self.tools):
            # A model may name anything: it is told, and the rollout goes on.
            known = ", ".join(tool.name for tool in self.tools) or "none"
            observation = message_pb2.Observation(
                call_id=call.call_id, text=f"unknown tool {call.name}; known: {known}", is_error=True
            )
        else:
            observation = await self._environment.call(call, timeout=self._left())
            spent = time.monotonic() - began
        self._recorder.observe(call.name, observation, tool_seconds=spent)
        return observation

    def _begin_step(self) -> None:
        limits = self._task.limits
        if len(self._recorder.steps) >= (limits.max_steps or DEFAULT_STEPS):
            raise LimitReached
        if 0 < limits.max_total_tokens <= self._tokens:
            raise LimitReached
        self._step_ends = time.monotonic() + self._deadline.for_step()

    def _left(self) -> float:
        """Seconds that the present step has left."""
        return max(self._step_ends - time.monotonic(), 0.0)


def payload_of(what: Said) -> dict[str, Any]:
    """The field of a Message that holds it."""
    match what:
        case str():
            return {"text": what}
        case message_pb2.Action():
            return {"action": what}
        case message_pb2.Observation():
            return {"observation": what}
        case message_pb2.ErrorPayload():
            return {"error": what}
        case _:
            return {"custom_json": json.dumps(what)}
