"""The built-in agent: model → tool calls → observations → … until it answers or its steps are used up.

Settings: `temperature` (default 1), `top_p`, `system_prompt`.
"""

from __future__ import annotations

from practicum.node.agent import Session
from practicum.node.failures import LimitReached
from practicum.v1 import inference_pb2

DEFAULT_STEPS = 10


async def tool_agent(session: Session) -> str:
    """Returns the text of the first turn without tool calls."""
    messages = opening(session)
    for _ in range(session.task.limits.max_steps or DEFAULT_STEPS):
        turn = await session.chat(messages)
        calls = turn.message.tool_calls
        if not calls:
            return turn.message.content
        messages.append(turn.message)
        for call, observation in zip(calls, await session.call_tools(calls), strict=True):
            messages.append(inference_pb2.ChatMessage(role="tool", content=observation.text, tool_call_id=call.call_id))
    raise LimitReached


def opening(session: Session) -> list[inference_pb2.ChatMessage]:
    """How the conversation begins."""
    messages = [inference_pb2.ChatMessage(role="user", content=session.task.instruction)]
    if prompt := session.config.get("system_prompt"):
        messages.insert(0, inference_pb2.ChatMessage(role="system", content=str(prompt)))
    return messages
