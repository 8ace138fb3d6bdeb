"""Tool calls: each runs once under its id, within its time, however many callers follow it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mcp import MCPError

from practicum.common.errors import PracticumError
from practicum.env_gateway.catalogue import Limits
from practicum.env_gateway.errors import Cancelled, ToolTimeout
from practicum.env_gateway.results import Progress, Result, capped, to_result
from practicum.env_gateway.upstream import Upstream, first_line

# A follower that reads slowly misses progress beyond these, never the result.
MAX_WAITING_PROGRESS = 64

Events = asyncio.Queue[Progress | None]


class Call:
    """A call that runs or has ended."""

    def __init__(self, name: str, arguments_json: str) -> None:
        self.name = name
        self.arguments_json = arguments_json
        self._followers: set[Events] = set()
        self._task: asyncio.Task[None] | None = None
        self._outcome: Result | PracticumError | None = None
        self._abandoned = False

    @property
    def broken(self) -> bool:
        """Whether nobody can tell what it did: it failed, or whoever waited for it left."""
        return self._abandoned or isinstance(self._outcome, PracticumError)

    @property
    def running(self) -> bool:
        """Whether the tool is at work."""
        return self._outcome is None

    def start(self, run: Callable[[Callable[[Progress], None]], Awaitable[Result]]) -> None:
        """Runs the tool in a task of the call's own, since its first caller may leave before a second."""
        self._task = asyncio.create_task(self._run(run))

    @contextmanager
    def follow(self) -> Iterator[AsyncGenerator[Progress | Result, None]]:
        """Progress from now on, then the result. When the last follower leaves early, the call is cancelled."""
        events: Events = asyncio.Queue()
        self._followers.add(events)
        if not self.running:
            events.put_nowait(None)
        try:
            yield self._tell_all(events)
        finally:
            self._followers.discard(events)
            if not self._followers and self.running and self._task is not None:
                self._abandoned = True
                self._task.cancel()

    async def ended(self) -> None:
        """Returns when the tool is no longer at work."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _tell_all(self, events: Events) -> AsyncGenerator[Progress | Result, None]:
        while (event := await events.get()) is not None:
            yield event
        if isinstance(self._outcome, PracticumError):
            raise self._outcome
        assert self._outcome is not None
        yield self._outcome

    async def _run(self, run: Callable[[Callable[[Progress], None]], Awaitable[Result]]) -> None:
        try:
            self._outcome = await run(self._tell)
        except PracticumError as error:
            self._outcome = error
        finally:
            if self._outcome is None:
                self._outcome = Cancelled()
            for events in self._followers:
                events.put_nowait(None)

    def _tell(self, progress: Progress) -> None:
        for events in self._followers:
            if events.qsize() < MAX_WAITING_PROGRESS:
                events.put_nowait(progress)


@dataclass(frozen=True, slots=True)
class Times:
    """A call's limits: without a sign of life, and in all."""

    idle_seconds: float
    total_seconds: float
    grace_seconds: float


def times_of(limits: Limits, asked_seconds: float | None) -> Times:
    """The catalogue's limits; a caller may only shorten them."""
    total = limits.call_total_timeout_seconds
    total = total if asked_seconds is None else min(total, asked_seconds)
    return Times(limits.call_idle_timeout_seconds, total, limits.grace_seconds)


async def run_tool(
    upstream: Upstream,
    tool: str,
    arguments: dict[str, object],
    *,
    times: Times,
    cap_bytes: int,
    tell: Callable[[Progress], None],
    on_stuck: Callable[[str], None],
) -> Result:
    """Calls a tool within its times. A server that then doesn't let go is `on_stuck`."""
    loop = asyncio.get_running_loop()
    end = loop.time() + times.total_seconds

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        if not clock.expired():
            clock.reschedule(min(end, loop.time() + times.idle_seconds))
        tell(Progress(progress, total, message or ""))

    try:
        async with asyncio.timeout(min(times.total_seconds, times.idle_seconds)) as clock:
            return to_result(await upstream.call(tool, arguments, on_progress), cap_bytes)
    except MCPError as error:
        # The server understood and refused: data for the agent, as any failing tool is.
        return capped(error.message, cap_bytes, is_error=True)
    except ValueError as error:  # pydantic's among them
        return capped(f"the server's answer is not a tool result: {first_line(error)}", cap_bytes, is_error=True)
    except TimeoutError as error:
        await let_go(upstream, times.grace_seconds, on_stuck)
        idle = times.idle_seconds < times.total_seconds and loop.time() < end
        limit = times.idle_seconds if idle else times.total_seconds
        raise ToolTimeout(f"{upstream.name}'s {tool} {'was silent for' if idle else 'took'} {limit:g} s") from error
    except asyncio.CancelledError:
        await let_go(upstream, times.grace_seconds, on_stuck)
        raise


async def let_go(upstream: Upstream, grace_seconds: float, on_stuck: Callable[[str], None]) -> None:
    """After a cancel: a server that doesn't answer a ping within the grace still holds on to the call."""
    if not await upstream.answers(within_seconds=grace_seconds):
        on_stuck(f"server {upstream.name} did not let go of a cancelled call within {grace_seconds:g} s")
