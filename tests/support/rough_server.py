"""An MCP server that does what servers should not. Standard library only, so that it starts at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
SLEEP = ["sleep", "1000"]
opened = 0


def main() -> None:
    """Serves; parameter `start` of the environment says how to begin."""
    text = os.environ.get("PRACTICUM_ENVIRONMENT_PARAMETERS") or "{}"
    start = json.loads(text).get("start", "")
    if start == "refuse":
        sys.stderr.write("error: parameter `start` is not to my taste\n")
        raise SystemExit(65)
    if start == "crash":
        sys.stderr.write("boom\n")
        raise SystemExit(1)
    if start == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in lines():
        if start == "mute":
            continue
        if start == "garbage":
            say(b"Welcome to my server!\n\n\xff\xfe{]\n[1, 2]\n")
        answer(json.loads(line))
    while start == "stubborn":
        time.sleep(1000)


def answer(message: Json) -> None:
    """Answers a request, or does not."""
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        return
    if method == "initialize":
        version = params["protocolVersion"]
        reply(
            message,
            {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "r", "version": "1"}},
        )
    elif method == "ping":
        reply(message, {})
    elif method == "tools/list":
        listed = [{"name": name, "description": name, "inputSchema": {"type": "object"}} for name in sorted(TOOLS)]
        half = len(listed) // 2
        reply(
            message, {"tools": listed[half:]} if params.get("cursor") else {"tools": listed[:half], "nextCursor": "2"}
        )
    elif method == "tools/call":
        TOOLS[params["name"]](message, params.get("arguments") or {})


def echo(message: Json, arguments: Json) -> None:
    """Says what it was told."""
    reply_text(message, arguments["text"])


def count(message: Json, arguments: Json) -> None:
    """Counts its calls: state of its own."""
    global opened
    opened += 1
    reply_text(message, str(opened))


def big(message: Json, arguments: Json) -> None:
    """So many letters."""
    reply_text(message, arguments.get("letter", "x") * arguments["count"])


def fail(message: Json, arguments: Json) -> None:
    """A failure of the tool's own."""
    reply(message, {"content": [{"type": "text", "text": "no such box"}], "isError": True})


def refuse(message: Json, arguments: Json) -> None:
    """A JSON-RPC error."""
    say_json({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "not like this"}})


def nonsense(message: Json, arguments: Json) -> None:
    """A result that is no tool result."""
    reply(message, {"content": 7})


def half_pair(message: Json, arguments: Json) -> None:
    """Half of a surrogate pair, which Python writes without a word."""
    reply_text(message, "\ud83d")


def report(message: Json, arguments: Json) -> None:
    """Progress, then the end."""
    token = message["params"]["_meta"]["progressToken"]
    for step in range(1, arguments["steps"] + 1):
        params = {"progressToken": token, "progress": step, "total": arguments["steps"], "message": f"step {step}"}
        say_json({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        time.sleep(arguments.get("pause", 0))
    reply_text(message, "done")


def chatter(message: Json, arguments: Json) -> None:
    """Stray prints around the answer."""
    say(b"debug: here I am\n\xff\xff\n")
    reply_text(message, "said")
    say(b'{"jsonrpc": "2.0", "id": 999, "result": {}}\n{"jsonrpc": "2.0"}\n')


def wait(message: Json, arguments: Json) -> None:
    """Never answers, but listens."""


def hang(message: Json, arguments: Json) -> None:
    """Never answers and no longer listens."""
    time.sleep(1000)


def crash(message: Json, arguments: Json) -> None:
    """Ends in the middle of a call."""
    sys.stderr.write("segmentation fault, sort of\n")
    sys.stderr.flush()
    os._exit(3)


def spawn(message: Json, arguments: Json) -> None:
    """Leaves processes behind: in its group, out of it, and a fork without exec that left too."""
    grouped = subprocess.Popen(SLEEP)
    daemon = subprocess.Popen(SLEEP, start_new_session=True)
    fork = os.fork()
    if fork == 0:
        os.setsid()
        time.sleep(1000)
        os._exit(0)
    reply_text(message, json.dumps([grouped.pid, daemon.pid, fork]))


def look(message: Json, arguments: Json) -> None:
    """What it sees of the world."""
    with open("/proc/self/environ", "rb") as file:  # noqa: PTH123
        born_with = file.read().decode(errors="replace")
    reply_text(message, json.dumps({"environment": dict(os.environ), "born_with": born_with, "folder": os.getcwd()}))  # noqa: PTH109


def litter(message: Json, arguments: Json) -> None:
    """Leaves a file in its folder."""
    with open("note.txt", "w") as file:  # noqa: PTH123
        file.write("here I was")
    reply_text(message, os.getcwd())  # noqa: PTH109


TOOLS = {
    tool.__name__: tool
    for tool in (
        *(echo, count, big, fail, refuse, nonsense, half_pair, report),
        *(chatter, wait, hang, crash, spawn, look, litter),
    )
}


def reply_text(message: Json, text: str) -> None:
    """A tool result."""
    reply(message, {"content": [{"type": "text", "text": text}]})


def reply(message: Json, result: Json) -> None:
    """A result."""
    say_json({"jsonrpc": "2.0", "id": message["id"], "result": result})


def say_json(message: Json) -> None:
    """A line of JSON."""
    say(json.dumps(message).encode() + b"\n")


def say(data: bytes) -> None:
    """Raw bytes."""
    while data:
        data = data[os.write(1, data) :]


def lines() -> Iterator[bytes]:
    """Lines that arrive, until the end."""
    rest = b""
    while data := os.read(0, 65_536):
        *whole, rest = (rest + data).split(b"\n")
        yield from whole


if __name__ == "__main__":
    main()
