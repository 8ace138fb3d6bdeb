"""A closed loop: as many rollouts are kept in flight as are wanted, whatever carries them."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

STUCK_SECONDS = 120
"""No run takes so long: somebody ended that carries it."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of the loop took."""

    rollouts: int
    seconds: float
    cpu_seconds: float
    latencies: list[float]

    @property
    def rate(self) -> float:
        """Rollouts a second."""
        return self.rollouts / self.seconds

    @property
    def cpu_ms(self) -> float:
        """CPU of the measured process for each rollout."""
        return 1000 * self.cpu_seconds / self.rollouts

    @property
    def p50_ms(self) -> float:
        """Time from the submit to the result, the median."""
        return 1000 * statistics.median(self.latencies)


@dataclass
class ClosedLoop:
    """Submits `rollouts`, `in_flight` at a time; what is due in one turn of the event loop is submitted together.

    `submit` begins to submit these ids, and returns at once; whoever sees results calls `done`, or `failed`.
    """

    submit: Callable[[list[str]], None]
    rollouts: int
    in_flight: int
    prefix: str
    latencies: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._submitted = 0
        self._due = 0
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, cpu: Callable[[], float]) -> Run:
        """Runs to the end. `cpu`: what the measured process used so far."""
        used, began = cpu(), time.perf_counter()
        self._more(min(self.in_flight, self.rollouts))
        async with asyncio.timeout(STUCK_SECONDS):
            await self._end
        return Run(self.rollouts, time.perf_counter() - began, cpu() - used, self.latencies)

    def done(self, ids: Iterable[str]) -> None:
        """These have ended. Ids of other loops, and repeats, are let pass."""
        now, ended = time.perf_counter(), 0
        for name in ids:
            if (begun := self._begun.pop(name, None)) is not None:
                self.latencies.append(now - begun)
                ended += 1
        self._more(min(ended, self.rollouts - self._submitted - self._due))
        if len(self.latencies) == self.rollouts and not self._end.done():
            self._end.set_result(None)

    def failed(self, error: BaseException) -> None:
        """Ends the loop with an error."""
        if not self._end.done():
            self._end.set_exception(error)

    def _more(self, count: int) -> None:
        if count and not self._due:
            asyncio.get_running_loop().call_soon(self._flush)
        self._due += count

    def _flush(self) -> None:
        first, self._due, self._submitted = self._submitted, 0, self._submitted + self._due
        ids = [f"{self.prefix}{number}" for number in range(first, self._submitted)]
        self._begun |= dict.fromkeys(ids, time.perf_counter())
        self.submit(ids)


class StandingBacklog:
    """A backlog that keeps its depth: for each rollout that ends, another is submitted."""

    def __init__(self, submit: Callable[[list[str]], None], prefix: str) -> None:
        self._submit = submit
        self._prefix = prefix
        self._submitted = self._due = self._left = 0
        self._reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, rollouts: int, cpu: Callable[[], float]) -> Run:
        """Until so many have ended from now on."""
        self._left, self._reached = rollouts, asyncio.get_running_loop().create_future()
        used, began = cpu(), time.perf_counter()
        async with asyncio.timeout(STUCK_SECONDS):
            await self._reached
        return Run(rollouts, time.perf_counter() - began, cpu() - used, [])

    def done(self, ids: Iterable[str]) -> None:
        """These have ended."""
        ended = len(list(ids))
        if ended and not self._due:
            asyncio.get_running_loop().call_soon(self._flush)
        self._due += ended
        self._left -= ended
        if self._left <= 0 and not self._reached.done():
            self._reached.set_result(None)

    def failed(self, error: BaseException) -> None:
        """Ends the run with an error."""
        if not self._reached.done():
            self._reached.set_exception(error)

    def _flush(self) -> None:
        first, self._due, self._submitted = self._submitted, 0, self._submitted + self._due
        self._submit([f"{self._prefix}{number}" for number in range(first, self._submitted)])
