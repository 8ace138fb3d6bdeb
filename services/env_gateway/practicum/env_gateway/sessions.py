"""A session: an environment's servers for one rollout, from QUEUED to CLOSED or LOST."""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from practicum.common.errors import FailedPrecondition, InvalidArgument, PracticumError
from practicum.env_gateway.calls import Call, run_tool, times_of
from practicum.env_gateway.catalogue import Environment
from practicum.env_gateway.errors import tool_unknown
from practicum.env_gateway.processes import Launcher
from practicum.env_gateway.results import Progress, Result
from practicum.env_gateway.tools import Tool, parse_arguments, select_tools
from practicum.env_gateway.upstream import Upstream
from practicum.env_gateway.workspace import Workspace

log = structlog.get_logger(__name__)


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


class Session:
    """An environment's servers and the calls made on them. Methods are called from one event loop."""

    def __init__(
        self,
        session_id: str,
        attempt: int,
        wish: Wish,
        *,
        launcher: Launcher,
        folder: Path,
        on_end: Callable[[Session], None],
    ) -> None:
        """Its files are below `folder`. `on_end` is told once, when it is CLOSED or LOST."""
        self.id = session_id
        self.attempt = attempt
        self.wish = wish
        self.state = State.QUEUED
        self.opened_at = time.time()
        self.call_count = 0
        self.lost_reason = ""
        self.resumed = False
        self.failed_to_open = False
        self.tools: dict[str, Tool] = {}
        self._calls: dict[str, Call] = {}
        self._launcher = launcher
        self._folder = folder
        self._on_end = on_end
        self._upstreams: list[Upstream] = []
        self._workspace: Workspace | None = None
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
        self.require_open()
        self.state = State.SCORED

    async def close(self) -> None:
        """Ends every process of it and removes its folder. May be repeated; not undone by cancellation."""
        await asyncio.shield(self._end(State.CLOSED))

    def lose(self, reason: str) -> None:
        """A server is gone or stuck: nothing that it did can be relied on."""
        if self._closing is None:
            self.lost_reason = reason
            log.warning("session_lost", session_id=self.id, attempt=self.attempt, reason=reason)
            self._end(State.LOST)

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

    @property
    def intact(self) -> bool:
        """Whether it is known what every call did, so that a further attempt can go on in it."""
        return not any(call.broken for call in self._calls.values())

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

    async def _open(self, slots: asyncio.Semaphore, after: Session | None) -> None:
        if after is not None:
            await after.close()
        try:
            async with slots:
                self.require(State.QUEUED)
                self.state = State.OPENING
                await self._open_servers()
            self.require(State.OPENING)
        except PracticumError:
            if self._closing is None:
                self.failed_to_open = True
                await self._sweep()
                self._end(State.CLOSED)
            raise
        self.state = State.READY
        self.touch()

    async def _open_servers(self) -> None:
        wish, limits = self.wish, self.wish.environment.limits
        self._workspace = Workspace(self._folder)
        self._upstreams = [
            Upstream(server.name, self._workspace.command(server, wish.parameters_json), self._launcher)
            for server in wish.environment.servers
            if not wish.servers or server.name in wish.servers
        ]
        timeout, grace = limits.open_timeout_seconds, limits.grace_seconds
        opens = (up.open(timeout_seconds=timeout, grace_seconds=grace, on_death=self.lose) for up in self._upstreams)
        # All come to their end, since a server that still opens can't be swept; the first error is the interesting one.
        for result in await asyncio.gather(*opens, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        tools = select_tools(self._upstreams, catalogued=wish.environment.tools, allowed=wish.allowed_tools)
        self.tools = {} if wish.hide_tools else tools

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

    def _end(self, state: State) -> asyncio.Task[None]:
        """Starts its end, unless it has one."""
        if self._closing is None:
            self.state = state
            self._closing = asyncio.create_task(self._close())
            self._on_end(self)
        return self._closing

    async def _close(self) -> None:
        await self._sweep()
        if self._opening is not None:
            # Its error is for whoever waits for the open; here it is only taken note of, since maybe nobody does.
            await asyncio.gather(self._opening, return_exceptions=True)
            await self._sweep()
        for call in self._calls.values():
            await call.ended()
        # Who followed a call has its end; the gateway remembers thousands of ended sessions, but not their results.
        self._calls.clear()
        self.tools.clear()

    async def _sweep(self) -> None:
        await asyncio.gather(*(upstream.close() for upstream in self._upstreams))
        self._upstreams = []
        if self._workspace is not None:
            workspace, self._workspace = self._workspace, None
            await workspace.remove()
