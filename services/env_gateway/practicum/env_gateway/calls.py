"""Tool calls: each runs once under its id, within its time, however many callers follow it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import mcp_types as types
from mcp import MCPError
from pydantic import ValidationError

from practicum.common.errors import InvalidArgument, PracticumError
from practicum.env_gateway.catalogue import Limits
from practicum.env_gateway.errors import Cancelled, ToolTimeout
from practicum.env_gateway.upstream import Upstream, first_line

# A follower that reads slowly misses progress beyond these, never the result.
MAX_WAITING_PROGRESS = 64


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a tool says it is."""

    progress: float
    total: float | None
    message: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool answered."""

    text: str
    is_error: bool = False
    structured_json: str = ""
    truncated: bool = False
    full_size_bytes: int = 0


class Call:
    """A call that runs or has ended."""

    def __init__(self, name: str, arguments_json: str) -> None:
        self.name = name
        self.arguments_json = arguments_json
        self._followers: set[asyncio.Queue[Progress | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._outcome: Result | PracticumError | None = None

    @property
    def running(self) -> bool:
        """Whether the tool is at work."""
        return self._outcome is None

    def start(self, run: Callable[[Callable[[Progress], None]], Awaitable[Result]]) -> None:
        """Runs the tool in a task of the call's own, since its first caller may leave before a second."""
        self._task = asyncio.create_task(self._run(run))

    async def follow(self) -> AsyncGenerator[Progress | Result, None]:
        """Progress from now on, then the result. When the last follower leaves early, the call is cancelled."""
        events: asyncio.Queue[Progress | None] = asyncio.Queue()
        if self.running:
            self._followers.add(events)
            try:
                while (event := await events.get()) is not None:
                    yield event
            finally:
                self._followers.discard(events)
                if not self._followers and self.running and self._task is not None:
                    self._task.cancel()
        if isinstance(self._outcome, PracticumError):
            raise self._outcome
        assert self._outcome is not None
        yield self._outcome

    async def ended(self) -> None:
        """Returns when the tool is no longer at work."""
        if self._task is not None:
            await asyncio.wait([self._task])

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
    except ValidationError as error:
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
    with suppress(PracticumError):
        if not await upstream.answers(within_seconds=grace_seconds):
            on_stuck(f"server {upstream.name} did not let go of a cancelled call within {grace_seconds:g} s")


def times_of(limits: Limits, asked_seconds: float | None) -> Times:
    """The catalogue's limits; a caller may only shorten them."""
    total = limits.call_total_timeout_seconds
    total = total if asked_seconds is None else min(total, asked_seconds)
    return Times(limits.call_idle_timeout_seconds, total, limits.grace_seconds)


def to_result(answer: types.CallToolResult, cap_bytes: int) -> Result:
    """The agent's text of an MCP result."""
    structured = "" if answer.structured_content is None else json.dumps(answer.structured_content)
    text = "\n".join(readable(block) for block in answer.content)
    return capped(text, cap_bytes, is_error=bool(answer.is_error), structured_json=structured)


def readable(block: types.ContentBlock) -> str:
    """A block as text; what is no text is named."""
    if isinstance(block, types.TextContent):
        return block.text
    if isinstance(block, types.ImageContent | types.AudioContent):
        return f"[{block.type} {block.mime_type}, {len(block.data) * 3 // 4} bytes]"
    if isinstance(block, types.ResourceLink):
        return f"[resource {block.uri}]"
    resource = block.resource
    return resource.text if isinstance(resource, types.TextResourceContents) else f"[resource {resource.uri}]"


def capped(text: str, cap_bytes: int, *, is_error: bool = False, structured_json: str = "") -> Result:
    """The result with its text cut at the cap, never within a character; structured content beyond it is left out."""
    data = text.encode(errors="replace")
    size = len(data) + len(structured_json)
    fits = len(structured_json) <= cap_bytes
    return Result(
        text if len(data) <= cap_bytes else data[:cap_bytes].decode(errors="ignore"),
        is_error=is_error,
        structured_json=structured_json if fits else "",
        truncated=len(data) > cap_bytes or not fits,
        full_size_bytes=size,
    )


def parse_arguments(text: str) -> dict[str, object]:
    """A call's arguments. InvalidArgument unless they are the text of a JSON object; empty text means none."""
    try:
        arguments = ARGUMENTS.decode(text or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidArgument({"call.arguments_json": f"is not JSON: {error}"}) from error
    if not isinstance(arguments, dict):
        raise InvalidArgument({"call.arguments_json": "is not the text of a JSON object"})
    return arguments


def refuse_constant(name: str) -> None:
    """NaN and infinities are no JSON, though Python would take them."""
    raise ValueError(f"{name} is not JSON")


ARGUMENTS = json.JSONDecoder(parse_constant=refuse_constant)
