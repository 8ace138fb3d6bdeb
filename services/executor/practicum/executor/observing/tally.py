"""What is counted on the way, since no later look at the state could tell it: plain numbers, cheap on the hot path."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from practicum.common.histogram import Histogram
from practicum.executor.store.results import Result
from practicum.v1 import trajectory_pb2

# Nodes say why an attempt failed: they must not fill a scrape with reasons.
MAX_REASONS = 64
OTHER = "OTHER"
KNOWN = frozenset(trajectory_pb2.Outcome.values())


@dataclass(slots=True)
class Tally:
    """Attempts and ends since this executor began."""

    attempts: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """Attempts that failed, by reason."""
    outcomes: dict[int, int] = field(default_factory=dict)
    """Rollouts that ended, by outcome."""
    dispatch_seconds: Histogram = field(default_factory=Histogram)
    """From the submit until the first attempt was on disk and its node was told."""

    def failed(self, reason: str) -> None:
        """An attempt failed."""
        known = reason in self.failures or (len(self.failures) < MAX_REASONS and reason.isidentifier())
        name = reason if known else OTHER
        self.failures[name] = self.failures.get(name, 0) + 1

    def ended(self, results: Iterable[Result]) -> None:
        """Rollouts ended."""
        outcomes = self.outcomes
        for result in results:
            outcome = result.outcome if result.outcome in KNOWN else trajectory_pb2.OUTCOME_UNSPECIFIED
            outcomes[outcome] = outcomes.get(outcome, 0) + 1

    def dispatched(self, queued_at: Iterable[float]) -> None:
        """Rollouts that stood in line since these times began."""
        now, observe = time.monotonic(), self.dispatch_seconds.observe
        for since in queued_at:
            observe(now - since)
