"""JSON-RPC over a server's socket, as the dispatcher that the MCP SDK's client session runs on.

The SDK's own pair of stream tasks costs more CPU than a tool call of a small environment; here bytes are parsed where
they arrive and an answer resolves a future. It also sees the end of the stream, which the SDK's transport tells nobody.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.abc
import structlog
from mcp.shared.dispatcher import (
    CallOptions,
    OnNotify,
    OnNotifyIntercept,
    OnRequest,
    ProgressFnT,
    coerce_request_id,
    run_notify_intercept,
)
from mcp.shared.exceptions import MCPError, NoBackChannelError
from mcp.shared.transport_context import TransportContext
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, REQUEST_TIMEOUT, RequestId

log = structlog.get_logger(__name__)

MAX_LINE_BYTES = 64 * 1024 * 1024
TRANSPORT = TransportContext(kind="stdio", can_send_request=False)

Json = dict[str, Any]


@dataclass(slots=True)
class Pending:
    """A request that waits for its answer."""

    answer: asyncio.Future[Json]
    on_progress: ProgressFnT | None


@dataclass(slots=True)
class Inbound:
    """What a handler of the server's requests is given. This client's handlers ask nothing back."""

    dispatcher: SocketDispatcher
    request_id: RequestId | None = None
    transport: TransportContext = TRANSPORT
    can_send_request: bool = False
    message_metadata: None = None

    @property
    def cancel_requested(self) -> anyio.Event:
        """Nothing here runs long enough to be cancelled."""
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """Not from within a handler."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Sends a notification."""
        await self.dispatcher.notify(method, params, opts)

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Servers are told no progress."""


class SocketDispatcher(asyncio.Protocol):
    """A server's JSON-RPC connection. Build with `connect`; it is closed with `close`."""

    def __init__(self, on_closed: Callable[[str], None]) -> None:
        """`on_closed` is told once why the connection ended, unless `close` ended it."""
        self._on_closed = on_closed
        self._ids = itertools.count(1)
        self._pending: dict[RequestId, Pending] = {}
        self._rest = bytearray()
        self._transport: asyncio.Transport | None = None
        self._closed = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._on_request: OnRequest | None = None
        self._on_notify: OnNotify | None = None
        self._intercept: OnNotifyIntercept | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Takes messages until the connection ends; part of the SDK's protocol."""
        self._on_request, self._on_notify, self._intercept = on_request, on_notify, on_notify_intercept
        task_status.started()
        await self._closed.wait()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> Json:
        """Sends a request and waits for its result. MCPError when the server says so or the connection ends."""
        options: CallOptions = opts or {}
        request_id = next(self._ids)
        parameters = dict(params or {})
        on_progress = options.get("on_progress")
        if on_progress is not None:
            parameters["_meta"] = {**parameters.get("_meta", {}), "progressToken": request_id}
        pending = Pending(asyncio.get_running_loop().create_future(), on_progress)
        self._pending[request_id] = pending
        try:
            await self._write({"jsonrpc": "2.0", "id": request_id, "method": method, "params": parameters})
            async with asyncio.timeout(options.get("timeout")):
                return await pending.answer
        except TimeoutError as error:
            self._abandon(request_id, options)
            raise MCPError(code=REQUEST_TIMEOUT, message=f"{method} timed out") from error
        except asyncio.CancelledError:
            self._abandon(request_id, options)
            raise
        finally:
            del self._pending[request_id]

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Sends a notification, or nothing when the connection is gone."""
        message: Json = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            message["params"] = dict(params)
        if not self._closed.is_set():
            await self._write(message)

    def close(self) -> None:
        """Ends the connection from this side; what still waits is told so."""
        self._end("closed", tell=False)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._rest += data
        if b"\n" not in data:
            if len(self._rest) > MAX_LINE_BYTES:
                self._end(f"it sent a message of more than {MAX_LINE_BYTES} bytes")
            return
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        for line in lines:
            if line.strip():
                self._take(line)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._end("it closed its output")

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._writable.set()

    async def _write(self, message: Json) -> None:
        await self._writable.wait()
        if self._transport is None or self._closed.is_set():
            raise closed_error()
        self._transport.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def _abandon(self, request_id: RequestId, options: CallOptions) -> None:
        """Tells the server that nobody waits any more; the protocol forbids it for the handshake."""
        if options.get("cancel_on_abandon", True) and not self._closed.is_set():
            self._spawn(self.notify("notifications/cancelled", {"requestId": request_id}))

    def _take(self, line: bytearray) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            log.warning("server_line_ignored", size_bytes=len(line))  # A stray print; what it says stays out of logs.
        elif "method" not in message:
            self._resolve(message)
        elif "id" in message:
            self._spawn(self._answer(message))
        else:
            self._hear(message["method"], message.get("params"))

    def _resolve(self, message: Json) -> None:
        key = message.get("id")
        pending = self._pending.get(coerce_request_id(key)) if isinstance(key, int | str) else None
        if pending is None or pending.answer.done():
            return  # Its caller gave up.
        error = message.get("error")
        if isinstance(error, dict):
            code = error.get("code")
            text = str(error.get("message", ""))
            pending.answer.set_exception(MCPError(code if isinstance(code, int) else INTERNAL_ERROR, text))
        elif isinstance(message.get("result"), dict):
            pending.answer.set_result(message["result"])
        else:
            pending.answer.set_exception(MCPError(INTERNAL_ERROR, "the server sent an answer without a result"))

    async def _answer(self, message: Json) -> None:
        """Answers a request of the server's: a ping; others are refused by the session."""
        assert self._on_request is not None
        answer: Json = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            answer["result"] = await self._on_request(
                Inbound(self, message["id"]), message["method"], message.get("params")
            )
        except MCPError as error:
            answer["error"] = error.error.model_dump(mode="json", exclude_none=True)
        except ValueError:  # pydantic's among them
            answer["error"] = {"code": -32602, "message": "Invalid request parameters"}
        if not self._closed.is_set():
            await self._write(answer)

    def _hear(self, method: str, params: Json | None) -> None:
        if method == "notifications/progress" and isinstance(params, dict):
            pending = self._pending.get(params.get("progressToken", -1))
            if pending is not None and pending.on_progress is not None:
                told = (params.get("progress", 0.0), params.get("total"), params.get("message"))
                self._spawn(pending.on_progress(*told))
        elif not run_notify_intercept(self._intercept, method, params) and self._on_notify is not None:
            self._spawn(self._on_notify(Inbound(self), method, params))

    def _spawn(self, work: Any) -> None:
        async def run(work: Coroutine[Any, Any, None]) -> None:
            await work

        task = asyncio.get_running_loop().create_task(run(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self, why: str, *, tell: bool = True) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        self._writable.set()
        if self._transport is not None:
            self._transport.abort()
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(closed_error())
        if tell:
            self._on_closed(why)


def closed_error() -> MCPError:
    """What a request meets when the connection is gone."""
    return MCPError(code=CONNECTION_CLOSED, message="Connection closed")


async def connect(connection: socket.socket, on_closed: Callable[[str], None]) -> SocketDispatcher:
    """Runs JSON-RPC over a connected socket, which it owns from here on."""
    loop = asyncio.get_running_loop()
    _, dispatcher = await loop.create_unix_connection(lambda: SocketDispatcher(on_closed), sock=connection)
    return dispatcher
