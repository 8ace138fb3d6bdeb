"""What an agent is: an async function that takes a session and returns its answer.

    async def my_agent(session: Session) -> str:
        observations = await session.act("", [session.tool_call("box__open", {"id": 17})])
        return f"<answer>{observations[0].text}</answer>"

Start a node with `--agent my_agent=my_module:my_agent` and submit tasks whose agent has the kind `my_agent`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from practicum.v1 import env_gateway_pb2, inference_pb2, message_pb2, task_pb2, trajectory_pb2

Said: TypeAlias = "str | Mapping[str, Any] | message_pb2.Action | message_pb2.Observation | message_pb2.ErrorPayload"
"""What an agent may say: a text, something that becomes JSON, or a payload of the protocol."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the model: its message (tool calls parsed), and why it ended."""

    message: inference_pb2.ChatMessage
    finish_reason: str


class Session(Protocol):
    """What an agent may do. Everything it does is recorded, and every wait ends at the rollout's deadline."""

    @property
    def task(self) -> task_pb2.AgentTask:
        """What to do. It never holds how the answer is scored."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The agent's settings, from the task."""

    @property
    def tools(self) -> Sequence[env_gateway_pb2.Tool]:
        """What may be called."""

    @property
    def past(self) -> Sequence[trajectory_pb2.Step]:
        """The steps that an earlier attempt made in this environment, for agents that are `resumable`; else none."""

    async def chat(self, messages: Sequence[inference_pb2.ChatMessage]) -> Turn:
        """Has the model continue the whole conversation so far. The turn is a step."""

    async def call_tools(self, calls: Sequence[message_pb2.ToolCall]) -> list[message_pb2.Observation]:
        """Calls tools, one after the other, within the present step."""

    async def act(self, text: str, calls: Sequence[message_pb2.ToolCall] = ()) -> list[message_pb2.Observation]:
        """A step of an agent that needs no model: says something, and calls tools."""

    async def receive(self, *, timeout: float | None = None) -> message_pb2.Message | None:
        """The next thing that others said to this agent or to all: the lower priority first, equals as they came.

        Waits for as long as the rollout lasts, or for `timeout` seconds: None when nothing came by then. 0 only looks.
        """

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
        """Says something to one receiver, or to all. Returns its id, at once.

        When there is no such receiver, a Message of category `error` comes back, whose header `in_reply_to` is that id.
        """

    def tool_call(self, name: str, arguments: Mapping[str, Any]) -> message_pb2.ToolCall:
        """A call with an id of its own."""


AgentFunction: TypeAlias = Callable[[Session], Awaitable[str]]


def resumable(agent: AgentFunction) -> AgentFunction:
    """Declares that an agent goes on from `session.past` when an earlier attempt at its rollout broke off.

    Of others, every attempt begins anew. It has to make one call at a time: what is done side by side isn't resumed.
    """
    agent.resumable = True  # type: ignore[attr-defined]
    return agent


def is_resumable(agent: AgentFunction) -> bool:
    """Whether it was declared so."""
    return getattr(agent, "resumable", False) is True
