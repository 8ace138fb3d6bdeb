"""Who leads, among executors on one PostgreSQL: one row, with a lease by the database's clock.

Whoever acquires the lease raises its epoch. Each write transaction locks the row for itself and looks at the epoch
first, so that none of an older epoch is committed after a newer one began: also not of a process that was stopped in
the middle of it. Methods block: call them in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy import (
    URL,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    DateTime,
    Float,
    MetaData,
    String,
    Table,
    column,
    exists,
    extract,
    func,
    inspect,
    literal,
    or_,
    select,
    table,
    update,
)
from sqlalchemy.dialects.postgresql import REGCLASS, insert
from sqlalchemy.engine import Connection, Engine, create_engine
from sqlalchemy.exc import OperationalError

from practicum.common.errors import Unavailable

log = structlog.get_logger(__name__)

# A table of its own, which stays as it is: candidates of other versions of the store agree on it.
METADATA = MetaData()
LEADERSHIP = Table(
    "leadership",
    METADATA,
    Column("one", Boolean, CheckConstraint("one"), primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("holder", String, nullable=False),
    Column("place", String, nullable=False),
    Column("address", String, nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
)
# Of the moment, not of the transaction's beginning: it may have waited.
NOW = func.clock_timestamp()
NEVER = func.to_timestamp(0)
# Conflicts with the lock of an acquisition, but not with a renewal: writes and renewals never wait for each other.
HELD_EPOCH = select(LEADERSHIP.c.epoch).with_for_update(read=True, key_share=True)
CREATION_LOCK = 0x70726163
# Milliseconds; other locks of the row are held for less.
LOCK_TIMEOUT = "200"
LOCK_NOT_AVAILABLE = "55P03"
LOCKS = table("pg_locks", column("pid"), column("database"), column("relation"), column("mode"))
DATABASES = table("pg_database", column("oid"), column("datname"))
THIS_DATABASE = select(DATABASES.c.oid).where(DATABASES.c.datname == func.current_database()).scalar_subquery()
# What a fence and a renewal hold for as long as their transactions last.
LOCK_HOLDERS = (
    select(LOCKS.c.pid)
    .distinct()
    .where(LOCKS.c.database == THIS_DATABASE, LOCKS.c.relation == literal(LEADERSHIP.name).cast(REGCLASS))
    .where(LOCKS.c.mode.in_(["RowShareLock", "RowExclusiveLock"]), LOCKS.c.pid != func.pg_backend_pid())
)


class LostLeadership(Unavailable):
    """Another executor leads, or may do so by now: nothing was written."""

    def __init__(self) -> None:
        super().__init__("this executor does not lead any more", reason="NOT_LEADER", retry_after_seconds=1.0)


@dataclass(frozen=True, slots=True)
class Candidate:
    """An executor that may lead. `place`: where it serves, which no two living processes share."""

    holder: str
    place: str
    address: str


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, and for how long without a renewal."""

    epoch: int
    address: str
    seconds_left: float


class LeaderLease:
    """The row, as one candidate sees it."""

    def __init__(self, url: URL, candidate: Candidate, *, seconds: float) -> None:
        """`seconds`: how long the lease holds without a renewal."""
        self.seconds = seconds
        self._candidate = candidate
        self._engine: Engine = create_engine(impatient(url, seconds), pool_size=1)

    def prepare(self) -> None:
        """Makes the row where it is missing."""
        with self._engine.begin() as connection:
            if inspect(connection).has_table(LEADERSHIP.name):
                return
            # Two that create one table at once would hurt each other.
            connection.execute(select(func.pg_advisory_xact_lock(CREATION_LOCK)))
            METADATA.create_all(connection)
            row = {"one": True, "epoch": 0, "holder": "", "place": "", "address": "", "expires_at": NEVER}
            connection.execute(insert(LEADERSHIP).values(row).on_conflict_do_nothing())

    def acquire(self) -> int | None:
        """Takes the lease when it is free, and returns the new epoch.

        It is free at once for a candidate at the holder's own place: the holder has ended, else the place were taken.
        """
        try:
            return self._take()
        except OperationalError as error:
            if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
        # The old leader was stopped in the middle of a transaction: it may stay so for ever, and its lock with it.
        self._cut_off()
        return self._take()

    def renew(self, epoch: int) -> bool:
        """Prolongs the lease; False when it is another's."""
        with self._engine.begin() as connection:
            statement = update(LEADERSHIP).where(LEADERSHIP.c.epoch == epoch).values(expires_at=self._expiry)
            return connection.execute(statement).rowcount == 1

    def release(self, epoch: int) -> None:
        """Lets another have it at once."""
        with self._engine.begin() as connection:
            free = {"expires_at": NEVER, "place": "", "address": ""}
            connection.execute(update(LEADERSHIP).where(LEADERSHIP.c.epoch == epoch).values(free))

    def leader(self) -> Leader | None:
        """Who leads; nobody when the lease has run out."""
        left = extract("epoch", LEADERSHIP.c.expires_at - NOW).cast(Float).label("left")
        with self._engine.begin() as connection:
            row = connection.execute(select(LEADERSHIP.c.epoch, LEADERSHIP.c.address, left)).first()
        return None if row is None or row.left <= 0 else Leader(row.epoch, row.address, row.left)

    def close(self) -> None:
        """Closes the connections."""
        self._engine.dispose()

    def _take(self) -> int | None:
        with self._engine.begin() as connection:
            connection.execute(select(func.set_config("lock_timeout", LOCK_TIMEOUT, True)))
            # A plain update would not wait for the writes of the old epoch.
            if connection.execute(select(LEADERSHIP.c.epoch).where(self._free).with_for_update()).first() is None:
                return None
            me = {name: getattr(self._candidate, name) for name in ("holder", "place", "address")}
            taken = update(LEADERSHIP).values(epoch=LEADERSHIP.c.epoch + 1, expires_at=self._expiry, **me)
            return int(connection.execute(taken.returning(LEADERSHIP.c.epoch)).scalar_one())

    def _cut_off(self) -> None:
        """Ends the sessions that have the row locked, while it is free."""
        with self._engine.begin() as connection:
            holders = connection.execute(LOCK_HOLDERS.where(exists().where(self._free))).scalars().all()
            log.warning("stopped_leader_cut_off", sessions=len(holders))
            for pid in holders:
                connection.execute(select(func.pg_terminate_backend(pid, 1_000)))

    @property
    def _free(self) -> ColumnElement[bool]:
        return or_(LEADERSHIP.c.expires_at <= NOW, LEADERSHIP.c.place == self._candidate.place)

    @property
    def _expiry(self) -> ColumnElement[datetime]:
        return NOW + literal(timedelta(seconds=self.seconds))


def fence(connection: Connection, epoch: int) -> None:
    """The first statement of a write transaction: raises LostLeadership unless this is the latest epoch.

    Until the transaction ends, nobody can begin a newer one.
    """
    if connection.execute(HELD_EPOCH).scalar() != epoch:
        raise LostLeadership


def impatient(url: URL, seconds: float) -> URL:
    """The URL with limits for a server that is silent, unless it has its own."""
    limits = {"connect_timeout": "2", "tcp_user_timeout": str(int(seconds * 1000))}
    return url.set(query={**limits, **url.query})
