"""The built-in agent: model → tool calls → observations → … until it answers or its steps are used up.

Settings: `temperature` (default 1), `top_p`, `system_prompt`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from practicum.node.agent import Session, resumable
from practicum.node.failures import LimitReached
from practicum.v1 import inference_pb2, message_pb2

DEFAULT_STEPS = 10


@resumable
async def tool_agent(session: Session) -> str:
    """Returns the text of the first turn without tool calls."""
    messages = opening(session)
    for step in session.past:
        if not step.action.tool_calls:
            return step.action.text
        messages += [said(step.action), *results(step.observations)]
    for _ in range((session.task.limits.max_steps or DEFAULT_STEPS) - len(session.past)):
        turn = await session.chat(messages)
        calls = turn.message.tool_calls
        if not calls:
            return turn.message.content
        messages += [turn.message, *results(await session.call_tools(calls))]
    raise LimitReached


def said(action: message_pb2.Action) -> inference_pb2.ChatMessage:
    """The model's turn that an action was."""
    return inference_pb2.ChatMessage(role="assistant", content=action.text, tool_calls=action.tool_calls)


def results(observations: Iterable[message_pb2.Observation]) -> Iterator[inference_pb2.ChatMessage]:
    """What the model reads of its calls."""
    for one in observations:
        yield inference_pb2.ChatMessage(role="tool", content=one.text, tool_call_id=one.call_id)


def opening(session: Session) -> list[inference_pb2.ChatMessage]:
    """How the conversation begins."""
    messages = [inference_pb2.ChatMessage(role="user", content=session.task.instruction)]
    if prompt := session.config.get("system_prompt"):
        messages.insert(0, inference_pb2.ChatMessage(role="system", content=str(prompt)))
    return messages
