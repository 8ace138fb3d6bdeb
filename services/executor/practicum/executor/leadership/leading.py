"""Leadership of one executor, from the day it is acquired until it is lost or released.

It is lost when another executor has it, and by the own clock when the lease could not be renewed in time: who was cut
off from the database stops without being told.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import NoReturn

import structlog
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from practicum.common.background import background
from practicum.executor.leadership.lease import LeaderLease, LostLeadership, fence

log = structlog.get_logger(__name__)

RENEWALS_PER_LEASE = 3
RETRY_SECONDS = 0.1
LOST_STATUS = 3


class Leadership:
    """Held leadership. A thread renews the lease, so that a busy event loop doesn't lose it."""

    def __init__(
        self, lease: LeaderLease, epoch: int, *, acquired_at: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`acquired_at`: the clock before the lease was asked for; the database counts from a moment later."""
        self.epoch = epoch
        self._lease = lease
        self._clock = clock
        self._valid_until = acquired_at + lease.seconds
        self._taken = False
        self._ended = Event()
        # A daemon: a database that never answers must not keep the process from ending.
        self._thread = Thread(target=self._keep, name="leadership", daemon=True)
        self._thread.start()

    @property
    def held(self) -> bool:
        """Whether this executor leads, as far as it can know."""
        return not self._taken and self._clock() < self._valid_until

    def fence(self, connection: Connection) -> None:
        """The first statement of each write transaction: raises LostLeadership unless this executor leads."""
        if not self.held:
            raise LostLeadership
        try:
            fence(connection, self.epoch)
        except LostLeadership:
            self._taken = True
            raise

    async def lost(self) -> None:
        """Returns once leadership was lost. Some time may pass: whatever is written in between is refused."""
        while self.held:  # noqa: ASYNC110 - time alone may end it, without an event
            await asyncio.sleep(RETRY_SECONDS)

    def release(self) -> None:
        """Lets another executor lead at once. Nothing may be written any more."""
        self._ended.set()
        self._thread.join(self._lease.seconds)
        with suppress(SQLAlchemyError):
            self._lease.release(self.epoch)

    def _keep(self) -> None:
        """Renews until the end, or until it was lost."""
        interval = wait = self._lease.seconds / RENEWALS_PER_LEASE
        while not self._ended.wait(wait) and self.held:
            wait = interval if self._renew() else RETRY_SECONDS

    def _renew(self) -> bool:
        asked_at = self._clock()
        try:
            renewed = self._lease.renew(self.epoch)
        except SQLAlchemyError as error:
            seconds_left = round(self._valid_until - self._clock(), 3)
            log.warning("lease_not_renewed", reason=str(error.__cause__ or error), seconds_left=seconds_left)
            return False
        if renewed:
            self._valid_until = asked_at + self._lease.seconds
        self._taken = not renewed
        return renewed


@asynccontextmanager
async def leading(leadership: Leadership) -> AsyncIterator[None]:
    """Leads for as long as the context lasts, and lets another lead after it. Once leadership is lost, the process ends
    at once: what it knows is stale, and whatever it would write is refused."""
    try:
        async with background(leave_when_lost(leadership)):
            yield
    except LostLeadership:
        leave(leadership)
    finally:
        await asyncio.to_thread(leadership.release)


async def leave_when_lost(leadership: Leadership) -> None:
    """Ends the process when another may lead."""
    await leadership.lost()
    leave(leadership)


def leave(leadership: Leadership) -> NoReturn:
    """Ends the process as a kill -9 would, which loses nothing. Whoever watches over it starts it again: a standby."""
    log.critical("leadership_lost", epoch=leadership.epoch)
    os._exit(LOST_STATUS)


def place_of(address: str) -> str:
    """What no two living processes share: an address, in its network, on a machine since it was started."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{Path('/proc/self/ns/net').stat().st_ino}/{address}"
