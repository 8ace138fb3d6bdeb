"""What a run counts while it trains: when rollouts were running, and which groups were rejected. Thread-safe."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

log = structlog.get_logger(__name__)


class BusyClock:
    """Remembers when at least one rollout was out at the executor: submitted, and not ended. Thread-safe."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._running = 0
        self._since = 0.0
        self._spans: list[tuple[float, float]] = []

    def change(self, by: int) -> None:
        """So many more rollouts are out; fewer, when negative."""
        with self._lock:
            before, self._running = self._running, self._running + by
            if before == 0 < self._running:
                self._since = self._now()
            elif before > 0 == self._running:
                self._spans.append((self._since, self._now()))

    def busy(self, start: float, end: float) -> float:
        """Seconds between two times in which rollouts were out. Forgets what ended before `start`."""
        with self._lock:
            self._spans = [span for span in self._spans if span[1] > start]
            spans = list(self._spans)
            if self._running:
                spans.append((self._since, end))
        return sum(max(0.0, min(end, last) - max(start, first)) for first, last in spans)


@dataclass(slots=True)
class Rejections:
    """Groups that were rejected whole. Many in a row without one that was taken mean that something is broken; when it
    may be back, such as a service that is started again, that is only certain after a while."""

    limit: int
    patience_seconds: float
    total: int = 0
    now: Callable[[], float] = time.monotonic
    reasons: Counter[str] = field(default_factory=Counter)
    _row: int = 0
    _since: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, reason: str, *, passing: bool) -> bool:
        """Counts one. True when the run had better end."""
        log.warning("group_rejected", reason=reason)
        with self._lock:
            self._since = self._since if self._row else self.now()
            self.total += 1
            self._row += 1
            self.reasons[reason] += 1
            waited = self.now() - self._since >= self.patience_seconds
            return self._row >= self.limit and (waited or not passing)

    def accepted(self) -> None:
        """A group was taken."""
        with self._lock:
            self._row = 0

    @property
    def pause_seconds(self) -> float:
        """How long to wait before the next group, so that a service that is away does not cost all tasks."""
        return min(5.0, 0.05 * self._row)
