"""When a service that ended by itself is started again. Pure: no clock, no process."""

from __future__ import annotations

from dataclasses import dataclass

FIRST_DELAY_SECONDS = 0.5
MAX_DELAY_SECONDS = 10.0
MAX_IN_A_ROW = 5
STEADY_SECONDS = 120.0


@dataclass(slots=True)
class Restarts:
    """The delay doubles from one end to the next; after two minutes up, earlier ends are forgotten."""

    total: int = 0
    _in_a_row: int = 0
    _started_at: float = 0.0
    _due_at: float | None = None

    def started(self, now: float) -> None:
        """The service was started."""
        self._started_at, self._due_at = now, None

    def due(self, now: float) -> bool | None:
        """Of a service that has ended: whether it is time to start it again; None when it ended too often."""
        if self._due_at is None:
            if now - self._started_at >= STEADY_SECONDS:
                self._in_a_row = 0
            if self._in_a_row == MAX_IN_A_ROW:
                return None
            self._due_at = now + min(FIRST_DELAY_SECONDS * 2**self._in_a_row, MAX_DELAY_SECONDS)
            self._in_a_row += 1
            self.total += 1
        return now >= self._due_at
