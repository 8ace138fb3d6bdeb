"""One MCP server of a session: its process, and the client session that talks to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import mcp_types as types
from mcp import ClientSession, MCPError
from mcp.shared.dispatcher import ProgressFnT
from pydantic import ValidationError

from practicum.common.errors import InvalidArgument, PracticumError, Unavailable
from practicum.env_gateway.processes import Command, Launcher, Process
from practicum.env_gateway.wire import ServerStreams, connect

# sysexits.h's EX_DATAERR: a server that ends with it before it speaks refuses the session's parameters.
WRONG_PARAMETERS = 65
STDERR_TAIL_BYTES = 2_000
CLIENT = types.Implementation(name="practicum-env-gateway", version="1")


class Upstream:
    """A server and its owner task.

    The SDK's session has to be left in the task that entered it, so one task of its own opens it, waits, and closes it;
    calls come from any task.
    """

    def __init__(self, name: str, command: Command, launcher: Launcher) -> None:
        self.name = name
        self.tools: list[types.Tool] = []
        self._command = command
        self._launcher = launcher
        self._stop = asyncio.Event()
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._owner: asyncio.Task[None] | None = None
        self._streams: ServerStreams | None = None
        self._session: ClientSession | None = None
        self._dead = ""

    async def open(self, *, timeout_seconds: float, grace_seconds: float, on_death: Callable[[str], None]) -> None:
        """Starts the server and lists its tools. Unavailable or InvalidArgument when that fails; all is swept then."""
        self._owner = asyncio.create_task(self._own(timeout_seconds, grace_seconds, on_death))
        await asyncio.shield(self._opened)

    async def close(self) -> None:
        """Ends the server with all it started. May be repeated."""
        self._stop.set()
        if not self._opened.done() and self._streams is not None:
            self._streams.close()
        if self._owner is not None:
            await asyncio.shield(self._owner)

    async def call(self, tool: str, arguments: dict[str, object], on_progress: ProgressFnT) -> types.CallToolResult:
        """Calls a tool. MCPError when the server refuses; Unavailable when it is gone."""
        assert self._session is not None
        if self._dead:
            raise self.gone(dispatched=False)
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        try:
            return await self._session.send_request(request, types.CallToolResult, progress_callback=on_progress)
        except MCPError as error:
            if self._dead or self._stop.is_set():
                raise self.gone(dispatched=True) from error
            raise

    async def answers(self, *, within_seconds: float) -> bool:
        """Whether the server still answers a ping."""
        assert self._session is not None
        try:
            # Around all of it: a server that reads nothing any more holds up the sending as well.
            async with asyncio.timeout(within_seconds):
                await self._session.send_request(types.PingRequest(), types.EmptyResult)
        except TimeoutError:
            return False
        except MCPError as error:
            return error.code != types.CONNECTION_CLOSED
        return True

    def gone(self, *, dispatched: bool) -> Unavailable:
        """The error of a call to a server that is gone."""
        return Unavailable(
            f"server {self.name} is gone: {self._dead or 'its session was closed'}",
            reason="TOOL_SERVER_LOST",
            metadata={"server": self.name, "dispatched": str(dispatched).lower()},
        )

    async def _own(self, timeout_seconds: float, grace_seconds: float, on_death: Callable[[str], None]) -> None:
        try:
            process = await self._launcher.start(self._command)
        except PracticumError as error:
            self._opened.set_exception(error)
            return
        failure: PracticumError | None = None
        self._streams = streams = await connect(process.socket, lambda why: self._die(why, on_death))
        watcher = asyncio.create_task(self._watch(process, on_death))
        try:
            async with ClientSession(streams, streams, client_info=CLIENT) as session:
                failure = await self._greet(session, timeout_seconds)
                if failure is None:
                    self._session = session
                    self._opened.set_result(None)
                    await self._stop.wait()
        finally:
            watcher.cancel()
            streams.close()
            status = await self._launcher.end(process, grace_seconds=grace_seconds)
            if failure is not None:
                self._opened.set_exception(self._refused() if status == WRONG_PARAMETERS else failure)

    async def _greet(self, session: ClientSession, timeout_seconds: float) -> PracticumError | None:
        """Shakes hands and lists the tools; what went wrong, if something did."""
        if self._stop.is_set():
            return self._failed("was closed while it opened")
        try:
            async with asyncio.timeout(timeout_seconds):
                await session.initialize()
                self.tools = await list_tools(session)
        except TimeoutError:
            return self._failed(f"did not answer within {timeout_seconds:g} s")
        except (MCPError, RuntimeError, ValidationError) as error:
            return self._failed(self._dead or f"answered wrongly: {first_line(error)}")
        return None

    async def _watch(self, process: Process, on_death: Callable[[str], None]) -> None:
        """Something that the server started may hold its output open, so its exit is watched apart from it."""
        await process.exited.wait()
        self._die("its process ended", on_death)

    def _die(self, why: str, on_death: Callable[[str], None]) -> None:
        if self._streams is not None:
            self._streams.close()
        if not self._dead and not self._stop.is_set():
            self._dead = why
            if self._opened.done():
                on_death(f"server {self.name}: {why}{self._said()}")

    def _failed(self, why: str) -> Unavailable:
        return Unavailable(
            f"server {self.name} {why}{self._said()}",
            reason="ENVIRONMENT_OPEN_FAILED",
            metadata={"server": self.name, "dispatched": "false"},
        )

    def _refused(self) -> InvalidArgument:
        return InvalidArgument({"environment.parameters_json": f"refused by server {self.name}{self._said()}"})

    def _said(self) -> str:
        """The last line that the server wrote to stderr."""
        lines = tail(self._command.stderr).strip().splitlines()
        return f"; it said: {lines[-1].strip()}" if lines else ""


async def list_tools(session: ClientSession) -> list[types.Tool]:
    """Every page of them."""
    result = await session.list_tools()
    tools = list(result.tools)
    while result.next_cursor:
        result = await session.list_tools(params=types.PaginatedRequestParams(cursor=result.next_cursor))
        tools += result.tools
    return tools


def first_line(error: Exception) -> str:
    """The first line of an error's text."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def tail(path: Path) -> str:
    """The end of a text file; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - STDERR_TAIL_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
