"""Tool names, arguments and results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from practicum.common.errors import InvalidArgument, Unavailable
from practicum.env_gateway.results import capped, to_result
from practicum.env_gateway.tools import parse_arguments, select_tools


@dataclass
class Listed:
    """What select_tools reads of an upstream."""

    name: str
    tools: list[types.Tool] = field(default_factory=list)


def upstream(name: str, *tools: str) -> Any:
    """A server with these tools."""
    return Listed(name, [types.Tool(name=tool, input_schema={"type": "object"}) for tool in tools])


def test_tools_are_named_by_their_server_and_sorted() -> None:
    """The name that the server knows stays beside it."""
    tools = select_tools([upstream("b", "x"), upstream("a", "x", "y__z")], catalogued=None, allowed=())
    assert [(name, tool.upstream.name, tool.upstream_name) for name, tool in tools.items()] == [
        ("a__x", "a", "x"),
        ("a__y__z", "a", "y__z"),
        ("b__x", "b", "x"),
    ]


@pytest.mark.parametrize(
    "servers",
    [
        [upstream("a", "x.y")],
        [upstream("a", "x" * 62)],
        [upstream("a", "x", "x")],
        [upstream("a", "b__c"), upstream("a__b", "c")],
    ],
)
def test_names_that_models_cannot_say_or_that_collide_are_refused(servers: list[Any]) -> None:
    """Unless the catalogue leaves them out."""
    with pytest.raises(Unavailable, match="leave it out"):
        select_tools(servers, catalogued=None, allowed=())
    assert select_tools(servers, catalogued=(), allowed=()) == {}


def test_a_task_may_only_narrow_the_catalogue() -> None:
    """And hears what there is."""
    servers = [upstream("a", "x", "y", "z")]
    assert list(select_tools(servers, catalogued={"a__x", "a__y"}, allowed=["a__y"])) == ["a__y"]
    with pytest.raises(InvalidArgument, match="there are: a__x"):
        select_tools(servers, catalogued={"a__x"}, allowed=["a__z"])


@pytest.mark.parametrize("text", ["", "{}"])
def test_no_arguments_are_no_error(text: str) -> None:
    """Empty text means none."""
    assert parse_arguments(text) == {}


@pytest.mark.parametrize("text", ["[]", "1", "{", '{"a": Infinity}', "[" * 100_000, "\ud800"])
def test_arguments_have_to_be_a_json_object(text: str) -> None:
    """As the error says."""
    with pytest.raises(InvalidArgument, match=r"call\.arguments_json"):
        parse_arguments(text)


@given(text=st.text(), cap=st.integers(1, 100))
def test_a_capped_text_is_the_longest_beginning_that_fits(text: str, cap: int) -> None:
    """In bytes of UTF-8, never within a character."""
    result = capped(text, cap)
    size = len(text.encode())
    assert text.startswith(result.text)
    assert len(result.text.encode()) <= cap
    assert result.truncated == (result.text != text) == (size > cap)
    assert size <= cap or len(result.text.encode()) > cap - 4
    assert result.full_size_bytes == size


def test_structured_content_beyond_the_cap_is_left_out_whole() -> None:
    """Half a JSON text is of no use."""
    answer = types.CallToolResult(
        content=[types.TextContent(text="short")], structured_content={"numbers": list(range(100))}
    )
    result = to_result(answer, 50)
    assert (result.text, result.structured_json, result.truncated) == ("short", "", True)
    assert to_result(answer, 5000).structured_json.startswith('{"numbers": [0, 1')


def test_what_is_no_text_is_named() -> None:
    """Images, sounds, resources: the agent reads that they were there."""
    answer = types.CallToolResult(
        content=[
            types.TextContent(text="look:"),
            types.ImageContent(data="AAAA", mime_type="image/png"),
            types.ResourceLink(name="note", uri="file:///note"),
            types.EmbeddedResource(resource=types.TextResourceContents(uri="file:///a", text="inside")),
            types.EmbeddedResource(resource=types.BlobResourceContents(uri="file:///b", blob="AAAA")),
        ]
    )
    assert to_result(answer, 1000).text.split("\n") == [
        "look:",
        "[image image/png, 3 bytes]",
        "[resource file:///note]",
        "inside",
        "[resource file:///b]",
    ]
