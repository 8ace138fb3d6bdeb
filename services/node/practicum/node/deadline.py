"""Deadlines that shrink on the way: no wait is longer than what its rollout has left."""

from __future__ import annotations

import time
from dataclasses import dataclass

from google.protobuf.duration_pb2 import Duration

from practicum.v1 import task_pb2

ROLLOUT_SECONDS = 600.0
STEP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a rollout has to end, by the monotonic clock, and how long one of its steps may take."""

    ends_at: float
    step_seconds: float

    @classmethod
    def of(cls, limits: task_pb2.Limits) -> Deadline:
        """From now on."""
        rollout = seconds_of(limits.rollout_deadline) or ROLLOUT_SECONDS
        return cls(time.monotonic() + rollout, seconds_of(limits.step_deadline) or STEP_SECONDS)

    def left(self) -> float:
        """Seconds that the rollout has left, never negative."""
        return max(self.ends_at - time.monotonic(), 0.0)

    def for_step(self) -> float:
        """Seconds that a wait within a step may take."""
        return min(self.left(), self.step_seconds)


def seconds_of(duration: Duration) -> float:
    """A Duration in seconds."""
    return duration.seconds + duration.nanos / 1e9


def duration_of(seconds: float) -> Duration:
    """Seconds as a Duration."""
    duration = Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return duration
