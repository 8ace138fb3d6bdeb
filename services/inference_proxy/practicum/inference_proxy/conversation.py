"""Conversations as values: turns that compare equal exactly when they say the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; `arguments` is the text of a JSON object."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One message."""

    role: str
    content: str = ""
    calls: tuple[Call, ...] = ()
    answers: str = ""
    """The call that a tool's answer belongs to."""


class Digester:
    """Digests a conversation turn by turn."""

    def __init__(self, tools_json: str) -> None:
        self._running = hashlib.blake2b(tools_json.encode(), digest_size=16)

    def add(self, turn: Turn) -> bytes:
        """The digest of the conversation up to and including this turn."""
        self._running.update(repr((turn.role, turn.content, turn.calls, turn.answers)).encode())
        return self._running.digest()


def for_template(turn: Turn) -> dict[str, Any]:
    """The turn as chat templates expect it: OpenAI's form, with arguments as an object."""
    message: dict[str, Any] = {"role": turn.role, "content": turn.content}
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": parsed(call.arguments)},
            }
            for call in turn.calls
        ]
    if turn.answers:
        message["tool_call_id"] = turn.answers
    return message


def parsed(arguments: str) -> Any:
    """Arguments as an object; text that is no JSON stays text."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
