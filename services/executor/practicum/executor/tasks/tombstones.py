"""Cancels that came before the submit they concern."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from practicum.common.errors import ResourceExhausted

TOMBSTONE_SECONDS = 3600.0
MAX_TOMBSTONES = 200_000


class Tombstones:
    """Ids of tasks that are not known yet and were cancelled, with when that is forgotten; the oldest first."""

    def __init__(self, kept: Mapping[str, float]) -> None:
        """`kept`: those on disk, the oldest first."""
        self._until = dict(kept)

    def of(self, task_ids: Iterable[str], now: float) -> list[str]:
        """Those of these tasks that were cancelled."""
        if not self._until:
            return []
        return [task_id for task_id in task_ids if self._until.get(task_id, 0.0) > now]

    def add(self, task_ids: Sequence[str], now: float) -> float:
        """Remembers them, a while longer if they are remembered. Returns until when. Raises ResourceExhausted."""
        while self._until and next(iter(self._until.values())) <= now:
            del self._until[next(iter(self._until))]
        if len(self._until) + len(task_ids) > MAX_TOMBSTONES:
            detail = f"{len(self._until)} cancels of unknown tasks are remembered, and {MAX_TOMBSTONES} is the limit"
            raise ResourceExhausted(detail, reason="TOMBSTONES_FULL", retry_after_seconds=60.0)
        until = now + TOMBSTONE_SECONDS
        for task_id in task_ids:
            self._until.pop(task_id, None)
            self._until[task_id] = until
        return until
