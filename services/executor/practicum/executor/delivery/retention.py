"""Prunes trajectories that every named consumer has acked; nothing else, and nothing while there is no consumer.

A trajectory's journal goes with it. Results stay: what ended, how, and that its id is taken.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from sqlalchemy import delete, func, select, update
from sqlalchemy.engine import Connection

from practicum.executor.core import Executor
from practicum.executor.store.cursors import first_after
from practicum.executor.store.tables import CONSUMERS, JOURNAL, RESULTS, TASKS, TRAJECTORIES

log = structlog.get_logger(__name__)

# One transaction of so many rows takes a few hundredths of a second; results of rollouts wait behind it.
PRUNE_AT_ONCE = 500
CHECK_SECONDS = 60.0
# After a start, for those who were connected before it to come back.
GRACE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Keep:
    """How long acked trajectories stay, and how many bytes of them; None: no limit. Consumers expire when unused."""

    seconds: float | None = None
    size_bytes: int | None = None
    consumer_seconds: float = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Prune:
    """Deletes the oldest trajectories that are acked by all and beyond a limit: older, or among `surplus` bytes."""

    older_than: float
    surplus: int

    def apply(self, connection: Connection) -> Pruned:
        """Returns what went: at most so many at once."""
        acked = connection.execute(select(func.min(CONSUMERS.c.cursor))).scalar_one()
        if acked is None:
            return Pruned(0, 0)
        found = connection.execute(OLDEST.where(TRAJECTORIES.c.number < first_after(acked))).all()
        surplus, numbers, sessions = self.surplus, [], []
        for row in found:
            if surplus <= 0 and row.ended_at > self.older_than:
                break
            surplus -= row.size_bytes
            numbers.append(row.number)
            sessions.append(f"{row.task_id}/{row.place}")
        connection.execute(delete(TRAJECTORIES).where(TRAJECTORIES.c.number.in_(numbers)))
        connection.execute(delete(JOURNAL).where(JOURNAL.c.session_id.in_(sessions)))
        return Pruned(len(numbers), self.surplus - surplus)


class Pruned(NamedTuple):
    """What went: so many trajectories, of so many bytes."""

    trajectories: int
    size_bytes: int


# From the trajectories that are left: results stay for ever.
OLDEST = (
    select(TRAJECTORIES.c.number, RESULTS.c.place, RESULTS.c.size_bytes, RESULTS.c.ended_at, TASKS.c.task_id)
    .select_from(
        TRAJECTORIES.join(RESULTS, RESULTS.c.number == TRAJECTORIES.c.number).join(
            TASKS, TASKS.c.number == RESULTS.c.task_number
        )
    )
    .order_by(TRAJECTORIES.c.number)
    .limit(PRUNE_AT_ONCE)
)


@dataclass(frozen=True, slots=True)
class ExpireConsumers:
    """Forgets consumers that nobody used for long. Those with an open stream are in use."""

    unused_since: float
    connected: Collection[str]

    def apply(self, connection: Connection) -> list[str]:
        """Returns their names."""
        used = update(CONSUMERS).where(CONSUMERS.c.name.in_(self.connected)).values(used_at=time.time())
        connection.execute(used)
        unused = CONSUMERS.c.used_at < self.unused_since, CONSUMERS.c.name.not_in(self.connected)
        names = list(connection.execute(select(CONSUMERS.c.name).where(*unused)).scalars())
        connection.execute(delete(CONSUMERS).where(CONSUMERS.c.name.in_(names)))
        return names


class Retention:
    """Looks once in a while."""

    def __init__(self, executor: Executor, keep: Keep, connected: Collection[str]) -> None:
        self._executor = executor
        self._keep = keep
        self._connected = connected
        self._began = time.time()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(min(CHECK_SECONDS, self._keep.consumer_seconds))

    async def look(self) -> None:
        """Forgets unused consumers, then prunes what nobody needs."""
        await self._expire()
        if self._keep.seconds is None and self._keep.size_bytes is None:
            return
        older_than = time.time() - self._keep.seconds if self._keep.seconds is not None else -math.inf
        surplus = await self._surplus()
        while (pruned := await self._executor.writer.make(Prune(older_than, surplus))).trajectories:
            surplus -= pruned.size_bytes
            log.info("trajectories_pruned", count=pruned.trajectories)

    async def _expire(self) -> None:
        unused_for = self._keep.consumer_seconds
        now = time.time()
        # Time in which nobody could connect doesn't count against anybody.
        settled = now - self._began >= min(GRACE_SECONDS, unused_for)
        unused_since = now - unused_for if settled else -math.inf
        names = await self._executor.writer.make(ExpireConsumers(unused_since, list(self._connected)))
        if names:
            log.info("consumers_expired", names=names)

    async def _surplus(self) -> int:
        """Bytes of trajectories beyond the limit."""
        if self._keep.size_bytes is None:
            return 0
        return await asyncio.to_thread(self._executor.store.stored_bytes) - self._keep.size_bytes
