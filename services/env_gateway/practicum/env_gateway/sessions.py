"""A session: an environment's servers for one rollout, from QUEUED to CLOSED or LOST."""

from __future__ import annotations

import asyncio
import enum
import json
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import mcp_types as types
import structlog

from practicum.common.errors import FailedPrecondition, InvalidArgument, PracticumError, Unavailable
from practicum.env_gateway.calls import Call, Progress, Result, parse_arguments, run_tool, times_of
from practicum.env_gateway.catalogue import TOOL_NAME, Environment, Server
from practicum.env_gateway.errors import tool_unknown
from practicum.env_gateway.processes import Command, Launcher
from practicum.env_gateway.upstream import Upstream

log = structlog.get_logger(__name__)

PARAMETERS = "PRACTICUM_ENVIRONMENT_PARAMETERS"
# Nothing else of the gateway's environment reaches a server: it may hold secrets.
INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "USER", "LOGNAME")


class State(enum.Enum):
    """As in the protocol."""

    QUEUED = 1
    OPENING = 2
    READY = 3
    SCORED = 4
    CLOSED = 5
    LOST = 6


@dataclass(frozen=True, slots=True)
class Wish:
    """What a session was asked for."""

    environment: Environment
    parameters_json: str = ""
    servers: tuple[str, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    hide_tools: bool = False


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the agent may call, and where it is."""

    name: str
    description: str
    input_schema_json: str
    upstream: Upstream
    upstream_name: str


class Session:
    """An environment's servers and the calls made on them. Methods are called from one event loop."""

    def __init__(
        self, session_id: str, attempt: int, wish: Wish, *, launcher: Launcher, on_lost: Callable[[], None]
    ) -> None:
        self.id = session_id
        self.attempt = attempt
        self.wish = wish
        self.state = State.QUEUED
        self.opened_at = time.time()
        self.call_count = 0
        self.lost_reason = ""
        self.resumed = False
        self.tools: dict[str, Tool] = {}
        self._calls: dict[str, Call] = {}
        self.failed_to_open = False
        self._launcher = launcher
        self._on_lost = on_lost
        self._upstreams: list[Upstream] = []
        self._folder: Path | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._first_used = self._last_used = time.monotonic()

    async def open(self, slots: asyncio.Semaphore, *, after: Session | None = None) -> None:
        """Opens it, once; repeats wait for the same end. `after`: the session it replaces, which is closed first."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(slots, after))
        # Shielded: whoever repeats the open later finds it done.
        await asyncio.shield(self._opening)

    def call(self, call_id: str, name: str, arguments_json: str, timeout_seconds: float | None) -> tuple[Call, bool]:
        """Starts a call, or finds the one that has this id; the flag says which."""
        self.touch()
        known = self._calls.get(call_id)
        if known is not None:
            if (known.name, known.arguments_json) != (name, arguments_json):
                raise InvalidArgument({"call.call_id": f"{call_id} was used for another call; choose another id"})
            return known, True
        self.require(State.READY)
        tool = self.tools.get(name)
        if tool is None:
            raise tool_unknown(name, self.tools)
        call = Call(name, arguments_json)
        call.start(self._run(tool, parse_arguments(arguments_json), timeout_seconds))
        self._calls[call_id] = call
        self.call_count += 1
        return call, False

    def scored(self) -> None:
        """Marks it scored: no further calls."""
        self.require(State.READY, State.SCORED)
        self.state = State.SCORED

    async def close(self) -> None:
        """Ends every process of it and removes its folder. May be repeated; not undone by cancellation."""
        if self._closing is None:
            if self.state is not State.LOST:
                self.state = State.CLOSED
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    def touch(self) -> None:
        """Puts off the idle limit."""
        self._last_used = time.monotonic()

    def expired(self, now: float) -> bool:
        """Whether a limit on its life has passed; never while a call runs."""
        if self.state not in (State.READY, State.SCORED) or any(call.running for call in self._calls.values()):
            return False
        limits = self.wish.environment.limits
        idle, age = now - self._last_used, now - self._first_used
        return idle > limits.idle_ttl_seconds or age > limits.absolute_ttl_seconds

    def require_open(self) -> None:
        """Refuses when its servers are not at hand."""
        self.require(State.READY, State.SCORED)

    def require(self, *states: State) -> None:
        """Refuses when it is in none of these states."""
        if self.state in states:
            return
        if self.state is State.LOST:
            raise FailedPrecondition(f"session {self.id} is lost: {self.lost_reason}", reason="SESSION_LOST")
        if self.state is State.CLOSED:
            raise FailedPrecondition(f"session {self.id} is closed", reason="SESSION_CLOSED")
        raise FailedPrecondition(f"session {self.id} is {self.state.name.lower()}", reason="SESSION_NOT_READY")

    def lose(self, reason: str) -> None:
        """A server is gone or stuck: nothing that it did can be relied on."""
        if self.state in (State.CLOSED, State.LOST):
            return
        self.state, self.lost_reason = State.LOST, reason
        self._on_lost()
        log.warning("session_lost", session_id=self.id, attempt=self.attempt, reason=reason)
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())

    async def _open(self, slots: asyncio.Semaphore, after: Session | None) -> None:
        if after is not None:
            await after.close()
        try:
            async with slots:
                if self.state is State.QUEUED:
                    self.state = State.OPENING
                    await self._open_servers()
            self.require(State.OPENING)
        except PracticumError:
            if self._closing is None:
                self.state, self.failed_to_open = State.CLOSED, True
                await self._sweep()
            raise
        self.state = State.READY
        self.touch()

    async def _open_servers(self) -> None:
        environment = self.wish.environment
        self._folder = Path(tempfile.mkdtemp(prefix="practicum-session-"))
        workspace = self._folder / "workspace"
        workspace.mkdir()
        chosen = [server for server in environment.servers if server.name in self.wish.servers or not self.wish.servers]
        self._upstreams = [Upstream(server.name, self._command(server, workspace), self._launcher) for server in chosen]
        limits = environment.limits
        results = await asyncio.gather(
            *(
                upstream.open(
                    timeout_seconds=limits.open_timeout_seconds,
                    grace_seconds=limits.grace_seconds,
                    on_death=self.lose,
                )
                for upstream in self._upstreams
            ),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
        self.tools = {} if self.wish.hide_tools else select_tools(self._upstreams, self.wish)

    def _command(self, server: Server, workspace: Path) -> Command:
        inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
        own = {"HOME": str(workspace), PARAMETERS: self.wish.parameters_json}
        return Command(
            server.argv,
            fork=server.fork,
            environment={**inherited, **own, **server.environment},
            folder=server.folder or workspace,
            stderr=workspace.parent / f"{server.name}.log",
        )

    def _run(
        self, tool: Tool, arguments: dict[str, object], timeout_seconds: float | None
    ) -> Callable[[Callable[[Progress], None]], Awaitable[Result]]:
        async def run(tell: Callable[[Progress], None]) -> Result:
            limits = self.wish.environment.limits
            try:
                return await run_tool(
                    tool.upstream,
                    tool.upstream_name,
                    arguments,
                    times=times_of(limits, timeout_seconds),
                    cap_bytes=limits.result_cap_bytes,
                    tell=tell,
                    on_stuck=self.lose,
                )
            finally:
                self.touch()

        return run

    async def _close(self) -> None:
        await self._sweep()
        if self._opening is not None:
            await asyncio.wait([self._opening])
            await self._sweep()
        for call in self._calls.values():
            await call.ended()
        if self.state is State.CLOSED:
            self._calls.clear()
            self.tools.clear()

    async def _sweep(self) -> None:
        await asyncio.gather(*(upstream.close() for upstream in self._upstreams))
        self._upstreams = []
        if self._folder is not None:
            folder, self._folder = self._folder, None
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def select_tools(upstreams: Sequence[Upstream], wish: Wish) -> dict[str, Tool]:
    """The tools that the catalogue and the task allow, by full name. Refuses names that break or collide."""
    catalogued = wish.environment.tools
    tools: dict[str, Tool] = {}
    for upstream in upstreams:
        for listed in upstream.tools:
            name = f"{upstream.name}__{listed.name}"
            if catalogued is not None and name not in catalogued:
                continue
            if not TOOL_NAME.fullmatch(name) or name in tools:
                raise Unavailable(
                    f"tool {name!r} of server {upstream.name} collides or does not match {TOOL_NAME.pattern}: "
                    "leave it out of the environment's `tools`",
                    reason="ENVIRONMENT_OPEN_FAILED",
                    metadata={"server": upstream.name},
                )
            tools[name] = Tool(name, listed.description or "", schema_text(listed), upstream, listed.name)
    unknown = [name for name in wish.allowed_tools if name not in tools]
    if unknown:
        known = ", ".join(sorted(tools))
        raise InvalidArgument({"environment.allowed_tools": f"no tool {unknown[0]!r}; there are: {known}"})
    return {name: tool for name, tool in sorted(tools.items()) if name in wish.allowed_tools or not wish.allowed_tools}


def schema_text(tool: types.Tool) -> str:
    """A tool's input schema as JSON text, keys in the server's order: a model is shown exactly this."""
    return json.dumps(tool.input_schema)
