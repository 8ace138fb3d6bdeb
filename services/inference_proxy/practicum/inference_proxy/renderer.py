"""Turns conversations into tokens, with the model's own template and tokenizer.

A conversation is rendered as a whole only once. Later turns are appended to what was read and sampled: the template is
rendered with a marker in place of the last sampled answer, and what stands behind the marker is the end of that answer,
the new turns, and the header of the next answer. So sampled tokens are never written as text and read again, and
templates that rewrite earlier answers (Qwen3's drops their thinking) can't change what was recorded.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import jinja2
import orjson

from practicum.common.errors import InvalidArgument
from practicum.inference_proxy.conversation import Turn, for_template
from practicum.inference_proxy.graph import Role, Segment
from practicum.inference_proxy.model import Model
from practicum.inference_proxy.packing import pack_ids

# A word that no template changes, and that nobody can guess: in a tool's answer it would hide what stands before it.
MARKER = f"answer{secrets.token_hex(16)}"


class Renderer:
    """Renders for one model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._header = self._answer_header()

    def first(self, turns: Sequence[Turn], tools_json: str) -> list[Segment]:
        """The segments of a conversation of which nothing is recorded."""
        return self._segments(self._encode(self._render(turns, tools_json)), role_of(turns[0]))

    def following(self, turns: Sequence[Turn], *, matched: int, tools_json: str, ended: bool) -> list[Segment]:
        """The segments that follow the answer `turns[matched - 1]`, which was sampled in this session.

        `ended`: its last token ended the turn. If it did not (the answer was cut by its length or by a stop text), the
        template's end-of-turn token is the first one that is read here.
        """
        cut = [*turns[: matched - 1], Turn("assistant", MARKER), *turns[matched:]]
        _, found, tail = self._render(cut, tools_json).partition(MARKER)
        if not found:
            raise InvalidArgument({"messages": "the model's template drops the latest answer, so it can't go on"})
        ids = self._encode(tail)
        if ended and ids and ids[0] in self._model.end_ids:
            del ids[0]
        return self._segments(ids, role_of(turns[matched]) if matched < len(turns) else Role.TEMPLATE)

    def _encode(self, text: str) -> list[int]:
        return list(self._model.tokenizer.encode(text, add_special_tokens=False).ids)

    def _segments(self, ids: list[int], role: Role) -> list[Segment]:
        size = len(self._header)
        if not size or ids[-size:] != self._header:
            return [Segment(role, pack_ids(ids))]
        given = [Segment(role, pack_ids(ids[:-size]))] if len(ids) > size else []
        return [*given, Segment(Role.TEMPLATE, pack_ids(self._header))]

    def _render(self, turns: Sequence[Turn], tools_json: str, *, header: bool = True) -> str:
        tools = parse_tools(tools_json)
        messages = [for_template(turn) for turn in turns]
        try:
            return self._model.template.render(
                messages=messages, tools=tools, add_generation_prompt=header, **self._model.special_tokens
            )
        except (jinja2.TemplateError, TypeError, KeyError, IndexError) as error:
            raise InvalidArgument({"messages": f"the model's template refuses them: {error}"}) from error

    def _answer_header(self) -> list[int]:
        turns = [Turn("user", "x")]
        with_header, without = self._render(turns, ""), self._render(turns, "", header=False)
        return self._encode(with_header.removeprefix(without))


def role_of(turn: Turn) -> Role:
    """The role of tokens that begin with this turn."""
    return Role.TOOL if turn.role == "tool" else Role.PROMPT


@lru_cache(maxsize=64)
def parse_tools(tools_json: str) -> list[Any] | None:
    """The tools, or None. An agent sends the same text in each turn."""
    if not tools_json:
        return None
    try:
        tools = orjson.loads(tools_json)
    except orjson.JSONDecodeError as error:
        raise InvalidArgument({"tools_json": f"is not JSON: {error}"}) from error
    if not isinstance(tools, list):
        raise InvalidArgument({"tools_json": "is not a JSON array"})
    return tools or None
