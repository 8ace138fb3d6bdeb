"""Messages over a server's socket: one a line, however they arrive, whatever else is printed."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from practicum.env_gateway import wire

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), lambda inner: st.lists(inner, max_size=3)
)
RESPONSES = st.builds(
    lambda request_id, value: {"jsonrpc": "2.0", "id": request_id, "result": {"value": value}},
    st.integers(0, 2**31) | st.text(min_size=1),
    JSON,
)
STRAY = st.binary(max_size=30).filter(lambda data: not data.lstrip().startswith(b"{")).map(lambda data: data + b"\n")


async def received(chunks: list[bytes]) -> tuple[list[Any], list[str]]:
    """The messages of a server that writes these bytes and ends, and what is told about its end."""
    ours, theirs = socket.socketpair()
    ends: list[str] = []
    ours.setblocking(False)
    streams = await wire.connect(ours, ends.append)
    with theirs:
        for chunk in chunks:
            theirs.sendall(chunk)
    messages = [item async for item in streams]
    return messages, ends


@given(parts=st.lists(RESPONSES | STRAY, max_size=8), cuts=st.lists(st.integers(0, 2000), max_size=8))
def test_messages_arrive_whole_and_in_order(parts: list[Any], cuts: list[int]) -> None:
    """However the bytes are cut, and with strays between them."""
    data = b"".join(part if isinstance(part, bytes) else json.dumps(part).encode() + b"\n" for part in parts)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    chunks = [data[start:end] for start, end in itertools.pairwise(places)]
    messages, ends = asyncio.run(received(chunks))
    sent = [part for part in parts if not isinstance(part, bytes)]
    assert [(item.message.id, item.message.result) for item in messages] == [(one["id"], one["result"]) for one in sent]
    assert ends == ["it closed its output"]


async def test_an_unfinished_line_is_no_message() -> None:
    """The server ended in the middle of it."""
    messages, ends = await received([b'{"jsonrpc": "2.0", "id": 1, "result": {'])
    assert (messages, ends) == ([], ["it closed its output"])


@pytest.mark.parametrize("line", [b"hello", b"[]", b"{}", b'{"jsonrpc": "2.0"}', b"\xff", b"[" * 50_000, b"7", b"null"])
def test_what_is_no_message_is_passed_over(line: bytes) -> None:
    """Prints, other people's JSON, bytes that are no text."""
    assert wire.parse(line) is None


def test_every_kind_of_message_is_known() -> None:
    """Requests and notifications may come from servers too."""
    assert isinstance(parsed({"id": 1, "method": "ping"}), JSONRPCRequest)
    assert isinstance(parsed({"method": "notifications/progress", "params": {}}), JSONRPCNotification)
    assert isinstance(parsed({"id": "a", "result": {}}), JSONRPCResponse)
    assert parsed({"id": 1, "result": {"text": "\ud83d"}}).result == {"text": "\ud83d"}


def parsed(message: dict[str, Any]) -> Any:
    """A message as the SDK sees it."""
    found = wire.parse(json.dumps({"jsonrpc": "2.0", **message}).encode())
    assert found is not None
    return found.message


async def test_what_is_sent_is_one_line_each() -> None:
    """Without the fields that nobody set: `params: null` is not allowed."""
    ours, theirs = socket.socketpair()
    streams = await wire.connect(ours, lambda why: None)
    await streams.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")))
    await streams.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="x", params={"text": "a\nb"})))
    streams.close()
    with theirs, pytest.raises(anyio.ClosedResourceError):
        first, second, rest = theirs.recv(10_000).split(b"\n")
        assert (json.loads(first), rest) == ({"jsonrpc": "2.0", "id": 1, "method": "ping"}, b"")
        assert json.loads(second)["params"] == {"text": "a\nb"}
        await streams.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=2, method="ping")))


async def test_our_own_close_is_not_told() -> None:
    """Only the server's end is news."""
    ours, theirs = socket.socketpair()
    ends: list[str] = []
    streams = await wire.connect(ours, ends.append)
    streams.close()
    with theirs:
        assert [item async for item in streams] == []
    assert ends == []
