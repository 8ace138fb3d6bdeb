"""How long a rollout waits before it is tried again."""

from __future__ import annotations

from collections.abc import Callable

MAX_SECONDS = 60.0
MAX_DOUBLINGS = 60

Jitter = Callable[[], float]
"""A random number in [0, 1): a delay is shortened by up to half, so that what failed together is not back together."""


def no_jitter() -> float:
    """Every delay is as long as its back-off."""
    return 0.0


def delay_seconds(first: float, failures: int, jitter: Jitter) -> float:
    """After so many failures: `first`, doubled with each further one, and at most a minute."""
    doubled = first * 2.0 ** min(failures - 1, MAX_DOUBLINGS)
    return min(doubled, MAX_SECONDS) * (1.0 - jitter() / 2)
