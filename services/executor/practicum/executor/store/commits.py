"""What the writer counts."""

from __future__ import annotations

from dataclasses import dataclass, field

from practicum.common.histogram import Histogram


@dataclass(slots=True)
class Commits:
    """What was written."""

    rows: int = 0
    failed: int = 0
    seconds: Histogram = field(default_factory=Histogram)

    def made(self, rows: int, seconds: float) -> None:
        """A batch is on disk."""
        self.rows += rows
        self.seconds.observe(seconds)
