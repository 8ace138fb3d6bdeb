"""What tools say, as an agent reads it: text, capped."""

from __future__ import annotations

import json
from dataclasses import dataclass

import mcp_types as types


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a tool says it is."""

    progress: float
    total: float | None
    message: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answered."""

    text: str
    is_error: bool = False
    structured_json: str = ""
    truncated: bool = False
    full_size_bytes: int = 0


def to_result(answer: types.CallToolResult, cap_bytes: int) -> Result:
    """The agent's text of an MCP result. ValueError when its structured content is no JSON (NaN, infinities)."""
    structured = "" if answer.structured_content is None else json.dumps(answer.structured_content, allow_nan=False)
    text = "\n".join(readable(block) for block in answer.content)
    return capped(text, cap_bytes, is_error=bool(answer.is_error), structured_json=structured)


def readable(block: types.ContentBlock) -> str:
    """A block as text; what is no text is named."""
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.ImageContent | types.AudioContent):
        return f"[{block.type} {block.mime_type}, {len(block.data) * 3 // 4} bytes]"
    if isinstance(block, types.ResourceLink):
        return f"[resource {block.uri}]"
    resource = block.resource
    return resource.text if isinstance(resource, types.TextResourceContents) else f"[resource {resource.uri}]"


def capped(text: str, cap_bytes: int, *, is_error: bool = False, structured_json: str = "") -> Result:
    """The result with its text cut at the cap, never within a character; structured content beyond it is left out."""
    data = text.encode(errors="replace")
    fits = len(structured_json) <= cap_bytes
    return Result(
        data[:cap_bytes].decode(errors="ignore"),
        is_error=is_error,
        structured_json=structured_json if fits else "",
        truncated=len(data) > cap_bytes or not fits,
        full_size_bytes=len(data) + len(structured_json),
    )
