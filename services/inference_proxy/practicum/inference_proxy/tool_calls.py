"""Finds tool calls in sampled text, in the form of Hermes and Qwen: a JSON object within `<tool_call>` tags."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable

from practicum.inference_proxy.conversation import Call

OPENING = "<tool_call>"
CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)


def random_id() -> str:
    """A call id as OpenAI's look."""
    return f"call_{uuid.uuid4().hex}"


def parse(text: str, *, new_id: Callable[[], str] = random_id) -> tuple[str, tuple[Call, ...]]:
    """The text without its calls, and the calls. What is not a well-formed call stays text."""
    calls: list[Call] = []

    def take(match: re.Match[str]) -> str:
        found = parse_call(match[1])
        if found is None:
            return match[0]
        calls.append(Call(new_id(), *found))
        return ""

    if OPENING not in text:
        return text, ()
    rest = CALL.sub(take, text)
    return (rest.strip() if calls else rest), tuple(calls)


def parse_call(text: str) -> tuple[str, str] | None:
    """Name and arguments of one call, or None if it is malformed."""
    try:
        call = json.loads(text, parse_constant=refuse)
        name, arguments = call["name"], call.get("arguments", {})
        if not isinstance(arguments, dict) or not name:
            return None
        written = json.dumps(arguments, ensure_ascii=False)
        # Half of a surrogate pair is JSON, but no text: it could not be sent.
        return (name, written) if name.encode() and written.encode() else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def refuse(constant: str) -> None:
    """NaN and Infinity are no JSON, though Python reads them."""
    raise ValueError(constant)
