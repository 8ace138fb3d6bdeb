"""A hot standby: waits for the leader's lease to end, and knows meanwhile who leads."""

from __future__ import annotations

import asyncio
import time

import structlog
from sqlalchemy.exc import SQLAlchemyError

from practicum.executor.leader_lease import LeaderLease
from practicum.executor.leadership import Leadership

log = structlog.get_logger(__name__)

# A clean hand-over takes up to so long; that a dead leader's lease ends is seen at that moment.
POLL_SECONDS = 0.25
MIN_POLL_SECONDS = 0.01


class Standby:
    """A candidate while it does not lead."""

    def __init__(self, lease: LeaderLease) -> None:
        self._lease = lease
        self._trouble = ""
        self.leader = ""
        """The address of who leads; empty when nobody does, or it can't be known now."""

    async def wait(self) -> Leadership:
        """Returns when this executor leads. While the database can't be reached, nobody begins to."""
        while True:
            asked_at = time.monotonic()
            try:
                epoch, seconds_left = await asyncio.to_thread(self._look)
                self._trouble = ""
            except SQLAlchemyError as error:
                epoch, seconds_left = None, POLL_SECONDS
                self._tell(error)
            if epoch is not None:
                log.info("leadership_acquired", epoch=epoch)
                return Leadership(self._lease, epoch, acquired_at=asked_at)
            await asyncio.sleep(min(max(seconds_left, MIN_POLL_SECONDS), POLL_SECONDS))

    def _look(self) -> tuple[int | None, float]:
        """The new epoch if this executor leads now, and how long the present lease holds."""
        self._lease.prepare()
        epoch = self._lease.acquire()
        leader = self._lease.leader()
        self.leader = leader.address if leader is not None else ""
        return epoch, leader.seconds_left if leader is not None else 0.0

    def _tell(self, error: SQLAlchemyError) -> None:
        """Says once what is wrong: it may last."""
        self.leader = ""
        trouble = str(error.__cause__ or error)
        if trouble != self._trouble:
            log.error("database_failed", reason=trouble)
        self._trouble = trouble
