"""Results as readers get them: from memory while they are new, from the store when they are older."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from practicum.executor.store.cursors import first_after

MAX_RECENT = 8_192
MAX_RECENT_BYTES = 64 * 1024 * 1024


class Result(NamedTuple):
    """A rollout that ended, with its serialized Trajectory. `group_size` is 0 unless it completes its group."""

    number: int
    task_id: str
    rollout_id: str
    queue: str
    labels: Mapping[str, str]
    outcome: int
    reward: float
    group_size: int
    body: bytes


@dataclass(slots=True)
class Recent:
    """The newest results: all whose number is above `since`. Consumers that keep up never wait for the disk."""

    since: int = 0
    _numbers: list[int] = field(default_factory=list)
    _results: list[Result] = field(default_factory=list)
    _bytes: int = 0

    def add(self, results: Sequence[Result]) -> None:
        """Results that were made durable, in the order of their numbers."""
        self._numbers.extend(result.number for result in results)
        self._results.extend(results)
        self._bytes += sum(len(result.body) for result in results)
        if len(self._results) > MAX_RECENT or self._bytes > MAX_RECENT_BYTES:
            self._forget()

    def after(self, cursor: int, limit: int) -> Sequence[Result] | None:
        """Results of which something comes after a cursor; None when only the store knows."""
        first = first_after(cursor)
        if first <= self.since:
            return None
        start = bisect_left(self._numbers, first)
        return self._results[start : start + limit]

    def _forget(self) -> None:
        """Drops the older half: seldom, so that it costs little for each."""
        half = (len(self._results) + 1) // 2
        self.since = self._numbers[half - 1]
        self._bytes -= sum(len(result.body) for result in self._results[:half])
        del self._numbers[:half], self._results[:half]
