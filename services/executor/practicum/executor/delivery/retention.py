"""Prunes trajectories that every named consumer has acked; nothing else, and nothing while there is no consumer.

A trajectory's journal goes with it. Results stay: what ended, how, and that its id is taken.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass

import structlog
from sqlalchemy import delete, func, select
from sqlalchemy.engine import Connection

from practicum.executor.core import Executor
from practicum.executor.store.cursors import first_after
from practicum.executor.store.tables import CONSUMERS, JOURNAL, RESULTS, TASKS, TRAJECTORIES

log = structlog.get_logger(__name__)

# One transaction of so many rows takes a few hundredths of a second; results of rollouts wait behind it.
PRUNE_AT_ONCE = 500
CHECK_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Keep:
    """How long acked trajectories stay, and how many bytes of them; None: no limit. Consumers expire when unused."""

    seconds: float | None = None
    size_bytes: int | None = None
    consumer_seconds: float = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Prune:
    """Deletes the oldest trajectories that are acked by all and beyond a limit."""

    keep: Keep

    def apply(self, connection: Connection) -> int:
        """Returns how many went."""
        acked = connection.execute(select(func.min(CONSUMERS.c.cursor))).scalar_one()
        if acked is None:
            return 0
        rows = connection.execute(
            select(RESULTS.c.number, RESULTS.c.place, RESULTS.c.size_bytes, RESULTS.c.ended_at, TASKS.c.task_id)
            .select_from(
                RESULTS.join(TRAJECTORIES, TRAJECTORIES.c.number == RESULTS.c.number).join(
                    TASKS, TASKS.c.number == RESULTS.c.task_number
                )
            )
            .where(RESULTS.c.number < first_after(acked))
            .order_by(RESULTS.c.number)
            .limit(PRUNE_AT_ONCE)
        ).all()
        surplus, stale = self._surplus(connection), time.time() - (self.keep.seconds or 0.0)
        numbers, sessions = [], []
        for row in rows:
            if surplus <= 0 and (self.keep.seconds is None or row.ended_at > stale):
                break
            surplus -= row.size_bytes
            numbers.append(row.number)
            sessions.append(f"{row.task_id}/{row.place}")
        connection.execute(delete(TRAJECTORIES).where(TRAJECTORIES.c.number.in_(numbers)))
        connection.execute(delete(JOURNAL).where(JOURNAL.c.session_id.in_(sessions)))
        return len(numbers)

    def _surplus(self, connection: Connection) -> int:
        """Bytes of trajectories beyond the limit."""
        if self.keep.size_bytes is None:
            return 0
        stored = RESULTS.join(TRAJECTORIES, TRAJECTORIES.c.number == RESULTS.c.number)
        size = connection.execute(select(func.coalesce(func.sum(RESULTS.c.size_bytes), 0)).select_from(stored))
        return int(size.scalar_one()) - self.keep.size_bytes


@dataclass(frozen=True, slots=True)
class ExpireConsumers:
    """Forgets consumers that nobody used for long; those with an open stream stay."""

    unused_since: float
    connected: Collection[str]

    def apply(self, connection: Connection) -> list[str]:
        """Returns their names."""
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

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(min(CHECK_SECONDS, self._keep.consumer_seconds))

    async def look(self) -> None:
        """Forgets unused consumers, then prunes what nobody needs."""
        unused_since = time.time() - self._keep.consumer_seconds
        names = await self._executor.writer.make(ExpireConsumers(unused_since, list(self._connected)))
        if names:
            log.info("consumers_expired", names=names)
        if self._keep.seconds is None and self._keep.size_bytes is None:
            return
        while pruned := await self._executor.writer.make(Prune(self._keep)):
            log.info("trajectories_pruned", count=pruned)
