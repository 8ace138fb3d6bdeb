"""The leases that stand, and when they end."""

from __future__ import annotations

from practicum.executor.scheduling.rollouts import Lease
from practicum.executor.scheduling.timers import Timers


class Leases(dict[str, Lease]):
    """Leases by id. To renew one is to write its `expires_at`: that it now ends later is found when it was to end."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        super().__init__()
        self._ends: Timers[Lease] = Timers(lambda lease: self.get(lease.lease_id) is lease)

    def grant(self, lease: Lease) -> None:
        """A new lease."""
        self[lease.lease_id] = lease
        self._ends.add(lease.expires_at, lease)

    def late(self, now: float) -> list[Lease]:
        """Those that were not renewed in time."""
        late = []
        for lease in self._ends.pop(now):
            if lease.expires_at > now:
                self._ends.add(lease.expires_at, lease)
            else:
                late.append(lease)
        return late

    def next_due(self) -> float | None:
        """When the next one may end; it may have been renewed."""
        return self._ends.next_due()
