"""Candidates for leadership of one database, and a table that shows who wrote."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Connection, Engine, create_engine, make_url, text

from practicum.executor.leadership.lease import Candidate, LeaderLease

SECONDS = 1.0
"""A lease."""


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    """A database with a table to write into."""
    engine = create_engine(postgres_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE writes (number bigserial PRIMARY KEY, epoch bigint)"))
    yield engine
    engine.dispose()


@pytest.fixture
def candidate(postgres_url: str) -> Iterator[Callable[..., LeaderLease]]:
    """Makes candidates, each at a place of its own."""
    leases: list[LeaderLease] = []

    def make(name: str, *, seconds: float = SECONDS, place: str = "", url: str = postgres_url) -> LeaderLease:
        lease = LeaderLease(make_url(url), Candidate(name, place or name, f"{name}:50051"), seconds=seconds)
        lease.prepare()
        leases.append(lease)
        return lease

    yield make
    for lease in leases:
        lease.close()


def write(connection: Connection, epoch: int) -> None:
    """A row."""
    connection.execute(text("INSERT INTO writes (epoch) VALUES (:epoch)"), {"epoch": epoch})


def written(engine: Engine) -> list[int]:
    """The epochs of all writes, in order."""
    with engine.connect() as connection:
        return list(connection.execute(text("SELECT epoch FROM writes ORDER BY number")).scalars())


def acquire_when_free(lease: LeaderLease) -> int:
    """The epoch; it takes no longer than the lease and a moment."""
    deadline = time.monotonic() + lease.seconds + 5
    while (epoch := lease.acquire()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return epoch
