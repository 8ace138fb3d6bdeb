"""A server's socket as the pair of streams that the MCP SDK's client session runs on.

The SDK's own stdio transport starts the process itself and pumps its lines through two tasks and two queues. Here the
launcher started it, a line is parsed by whoever waits for it, and the end of the stream is told, since a session whose
server is gone must not look alive.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from types import TracebackType

import anyio
import structlog
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

log = structlog.get_logger(__name__)

MAX_LINE_BYTES = 64 * 1024 * 1024


class ServerStreams:
    """Both directions of a server's JSON-RPC, one message a line. Build with `connect`; end with `close`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_end: Callable[[str], None]
    ) -> None:
        """`on_end` is told once why the server's output ended, unless `close` ended it."""
        self._reader = reader
        self._writer = writer
        self._on_end = on_end
        self._closed = False

    def close(self) -> None:
        """Ends both directions from this side. May be repeated."""
        self._closed = True
        self._writer.transport.abort()

    async def receive(self) -> SessionMessage | Exception:
        """The next message; a stray print is passed over. Part of the SDK's protocol, as are all below."""
        try:
            while line := await self._reader.readline():
                message = parse(line)
                if message is not None:
                    return message
            self._end("it closed its output")
        except ValueError:  # The reader's word for a line beyond its limit.
            self._end(f"it sent a message of more than {MAX_LINE_BYTES} bytes")
        except OSError:
            self._end("it closed its output")
        raise anyio.EndOfStream

    async def send(self, item: SessionMessage, /) -> None:
        """Writes a message. A request waits while the server reads nothing; the notice that one was given up does not,
        since the SDK would hold up the caller for five seconds."""
        if self._closed:
            raise anyio.ClosedResourceError
        self._writer.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
        try:
            if isinstance(item.message, JSONRPCRequest):
                await self._writer.drain()
        except OSError as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        """Nothing: the owner closes, after it has heard why the other side did."""

    def __aiter__(self) -> ServerStreams:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> ServerStreams:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def _end(self, why: str) -> None:
        if not self._closed:
            self.close()
            self._on_end(why)


def parse(line: bytes) -> SessionMessage | None:
    """A line's message; None, and a word in the log, where it is none. What it says stays out of the log."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValidationError:
        pass
    try:
        # Python's parser takes halves of surrogate pairs too, as Python servers write them: the call must not hang.
        return SessionMessage(jsonrpc_message_adapter.validate_python(json.loads(line), by_name=False))
    except (ValueError, RecursionError):
        if line.strip():
            log.warning("server_line_ignored", size_bytes=len(line))
        return None


async def connect(connection: socket.socket, on_end: Callable[[str], None]) -> ServerStreams:
    """Streams over a connected socket, which they own from here on."""
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=MAX_LINE_BYTES)
    return ServerStreams(reader, writer, on_end)
