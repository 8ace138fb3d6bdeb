"""The game as an MCP server over stdio.

It speaks the handshake revisions of MCP by itself, one request at a time: there is nothing to wait for, so it needs
no event loop, and a forked copy answers its first request after about a millisecond of CPU.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from practicum.environments.boxes.game import TOOL_DESCRIPTION, TOOL_NAME, TOOL_SCHEMA, Boxes

PARAMETERS = "PRACTICUM_ENVIRONMENT_PARAMETERS"
# sysexits.h's EX_DATAERR: by it the gateway knows that the caller's parameters were wrong.
WRONG_PARAMETERS = 65
PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
TOOL = {"name": TOOL_NAME, "description": TOOL_DESCRIPTION, "inputSchema": TOOL_SCHEMA}

Json = dict[str, Any]


class RpcError(Exception):
    """An answer that is a JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def main() -> None:
    """Serves the game of the environment variable until stdin ends."""
    try:
        boxes = Boxes.from_json(os.environ.get(PARAMETERS, ""))
    except (ValueError, AttributeError) as error:
        sys.stderr.write(f"error: {PARAMETERS}: {error}\n")
        raise SystemExit(WRONG_PARAMETERS) from error
    for line in lines(0):
        answer = respond(line, boxes)
        if answer is not None:
            write(1, json.dumps(answer).encode() + b"\n")


def respond(line: bytes, boxes: Boxes) -> Json | None:
    """The answer to one message; None where none is due."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return failure(None, RpcError(PARSE_ERROR, "not JSON"))
    if not isinstance(message, dict) or not isinstance(message.get("method", ""), str):
        return failure(None, RpcError(INVALID_REQUEST, "not a request"))
    if "id" not in message or "method" not in message:  # A notification, or an answer to nothing we asked.
        return None
    params = message.get("params", {})
    if not isinstance(params, dict):
        return failure(message["id"], RpcError(INVALID_PARAMS, "params is no object"))
    try:
        result = handle(message["method"], params, boxes)
    except RpcError as error:
        return failure(message["id"], error)
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def handle(method: str, params: Json, boxes: Boxes) -> Json:
    """The result of a request."""
    if method == "initialize":
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "box", "version": "1"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return call(params, boxes)
    raise RpcError(METHOD_NOT_FOUND, f"no method {method}")


def call(params: Json, boxes: Boxes) -> Json:
    """Opens a box. Arguments that don't fit the schema are the tool's own error, for the agent to learn from."""
    if params.get("name") != TOOL_NAME:
        raise RpcError(INVALID_PARAMS, f"no tool {params.get('name')}; there is {TOOL_NAME}")
    arguments = params.get("arguments")
    box = arguments.get("id") if isinstance(arguments, dict) else None
    text = boxes.open(box) if isinstance(box, int) and not isinstance(box, bool) else "error"
    return {"content": [{"type": "text", "text": text}], "isError": text == "error"}


def failure(request_id: Any, error: RpcError) -> Json:
    """A JSON-RPC error."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": error.code, "message": str(error)}}


def lines(descriptor: int) -> Iterator[bytes]:
    """The lines that arrive, until the end."""
    rest = b""
    while data := os.read(descriptor, 65_536):
        *whole, rest = (rest + data).split(b"\n")
        yield from (line for line in whole if line.strip())


def write(descriptor: int, data: bytes) -> None:
    """Writes all of it."""
    while data:
        data = data[os.write(descriptor, data) :]
