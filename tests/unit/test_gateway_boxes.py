"""The bundled game's MCP server, message by message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from practicum.environments.boxes.game import Boxes
from practicum.environments.boxes.server import respond

GAME = Boxes((17, 42), 33)


def ask(method: str, **params: Any) -> Any:
    """The answer to a request."""
    answer = respond(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode(), GAME)
    assert answer is not None
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 1)
    return answer.get("result") or answer.get("error")


@pytest.mark.parametrize(("asked", "given"), [("2024-11-05", "2024-11-05"), ("2031-01-01", "2025-11-25")])
def test_the_revision_is_the_one_asked_for_if_known(asked: str, given: str) -> None:
    """Else the newest of those with a handshake."""
    assert ask("initialize", protocolVersion=asked)["protocolVersion"] == given


@pytest.mark.parametrize(
    ("arguments", "text", "wrong"),
    [
        ({"id": 17}, "box 42", False),
        ({"id": 42}, "coin 33", False),
        ({"id": 50}, "empty", False),
        ({"id": "17"}, "error", True),
        ({"id": True}, "error", True),
        ({}, "error", True),
        (None, "error", True),
    ],
)
def test_boxes_open(arguments: Any, text: str, wrong: bool) -> None:
    """A box, the coin, nothing; what doesn't fit the schema is the tool's own error."""
    result = ask("tools/call", name="open", arguments=arguments)
    assert result == {"content": [{"type": "text", "text": text}], "isError": wrong}


def test_there_is_one_tool() -> None:
    """With a schema for the model."""
    (tool,) = ask("tools/list")["tools"]
    assert (tool["name"], tool["inputSchema"]["required"]) == ("open", ["id"])
    assert ask("tools/call", name="close", arguments={})["code"] == -32602
    assert ask("resources/list")["code"] == -32601


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello", -32700),
        (b"\xff", -32700),
        (b"[]", -32600),
        (b'{"id": 1, "method": 7}', -32600),
        (b"[" * 100_000, -32700),
        (b'{"id": 1, "method": "tools/call", "params": [1]}', -32602),
        (b'{"id": 1, "method": "initialize", "params": "x"}', -32602),
    ],
)
def test_what_is_no_request_is_answered_by_an_error(line: bytes, code: int) -> None:
    """The game goes on."""
    answer = respond(line, GAME)
    assert answer is not None
    assert answer["error"]["code"] == code


@pytest.mark.parametrize("message", [{"method": "notifications/initialized"}, {"id": 3, "result": {}}])
def test_notifications_and_answers_are_not_answered(message: dict[str, Any]) -> None:
    """None is due."""
    assert respond(json.dumps(message).encode(), GAME) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "7", "{}", '{"chain": []}', '{"chain": ["a"], "coin": 1}', '{"chain": [1]}', '{"chain": 1, "coin": 1}'],
)
def test_parameters_that_are_no_game_are_refused(text: str) -> None:
    """What is wrong is said; the server ends with 65, so the caller hears it."""
    with pytest.raises((ValueError, AttributeError)):
        Boxes.from_json(text)
    assert Boxes.from_json(GAME.to_json()) == GAME
