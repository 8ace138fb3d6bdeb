"""How queues share by weight: start-time fair queueing, by the virtual time of each priority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from practicum.executor.scheduling.lines import Line

MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e6


def check_weights(weights: Mapping[str, float]) -> None:
    """Raises ValueError for a weight that virtual time cannot be divided by."""
    for queue, weight in weights.items():
        if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
            raise ValueError(f"the weight of queue {queue} is {weight}; give {MIN_WEIGHT:g} to {MAX_WEIGHT:g}")


@dataclass(slots=True)
class QueueCounts:
    """How many rollouts of a queue wait (for a node, or for their next attempt) and run."""

    queued: int = 0
    running: int = 0
    lines: list[Line] = field(default_factory=list, repr=False, compare=False)
    """Where they wait."""


@dataclass(slots=True, eq=False)
class Clock:
    """The virtual time of a priority: the start of what was served last."""

    now: float = 0.0
    latest: float = 0.0
    waiting: int = 0


@dataclass(slots=True, eq=False)
class Flow:
    """A queue's rollouts of one priority. That with the smallest `time` is served next, and moves on by `stride`."""

    priority: int
    number: int
    stride: float
    clock: Clock
    counts: QueueCounts
    time: float = 0.0

    def join(self) -> None:
        """One more waits."""
        self.clock.waiting += 1

    def leave(self) -> None:
        """One waits no longer. With nobody left, all flows are even again."""
        clock = self.clock
        clock.waiting -= 1
        if not clock.waiting:
            clock.now = clock.latest

    def charge(self) -> None:
        """One is served. A flow that was behind, idle or without a node, is now at the present: it saves nothing up."""
        clock = self.clock
        if self.time < clock.now:
            self.time = clock.now
        else:
            clock.now = self.time
        self.time += self.stride
        if self.time > clock.latest:
            clock.latest = self.time
