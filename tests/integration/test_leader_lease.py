"""The lease of leadership on a real PostgreSQL: one has it, and who had it before can write nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, make_url
from sqlalchemy.exc import OperationalError
from support.candidates import SECONDS, acquire_when_free, write, written
from support.candidates import candidate as candidate
from support.candidates import engine as engine

from practicum.executor.leadership.leading import place_of
from practicum.executor.leadership.lease import Candidate, LeaderLease, LostLeadership, fence


def test_one_of_two_leads(candidate: Callable[..., LeaderLease]) -> None:
    """The other is told whom to ask."""
    a, b = candidate("a"), candidate("b")
    assert a.acquire() == 1
    assert b.acquire() is None
    leader = b.leader()
    assert leader is not None
    assert (leader.epoch, leader.address) == (1, "a:50051")
    assert 0 < leader.seconds_left <= SECONDS


def test_one_of_many_that_ask_at_once_leads(candidate: Callable[..., LeaderLease], postgres_url: str) -> None:
    """From the creation of the table on."""
    leases = [LeaderLease(make_url(postgres_url), Candidate(n, n, n), seconds=SECONDS) for n in "abcdefgh"]

    def run(lease: LeaderLease) -> int | None:
        lease.prepare()
        return lease.acquire()

    with ThreadPoolExecutor(len(leases)) as threads:
        epochs = list(threads.map(run, leases))
    for lease in leases:
        lease.close()
    assert sorted(epoch for epoch in epochs if epoch) == [1]


def test_an_expired_lease_is_taken_with_a_higher_epoch(candidate: Callable[..., LeaderLease]) -> None:
    """And can't be renewed by who had it."""
    a, b = candidate("a", seconds=0.2), candidate("b")
    assert a.acquire() == 1
    assert acquire_when_free(b) == 2
    assert not a.renew(1)
    assert a.acquire() is None


def test_a_late_release_takes_nothing_from_the_next_leader(candidate: Callable[..., LeaderLease]) -> None:
    """It is of an older epoch."""
    a, b = candidate("a", seconds=0.1), candidate("b", seconds=60)
    assert a.acquire() == 1
    assert acquire_when_free(b) == 2
    a.release(1)
    leader = a.leader()
    assert leader is not None and leader.address == "b:50051"


def test_who_starts_again_in_the_same_place_leads_at_once(candidate: Callable[..., LeaderLease]) -> None:
    """Only one process can be there, so the old one has ended."""
    assert candidate("a", seconds=60, place="here").acquire() == 1
    assert candidate("b", place="there").acquire() is None
    assert candidate("c", place="here").acquire() == 2


def test_places_are_of_this_machine(address: str) -> None:
    """The same address is another place elsewhere."""
    assert place_of(address).endswith(address)
    assert place_of(address) != address
    assert place_of(address) == place_of(address)


def test_writes_of_an_old_epoch_are_refused(candidate: Callable[..., LeaderLease], engine: Engine) -> None:
    """Whoever led before can write nothing."""
    a, b = candidate("a", seconds=0.1), candidate("b")
    assert a.acquire() == 1
    with engine.begin() as connection:
        fence(connection, 1)
        write(connection, 1)
    assert acquire_when_free(b) == 2
    with pytest.raises(LostLeadership), engine.begin() as connection:
        fence(connection, 1)
        write(connection, 1)
    assert written(engine) == [1]


def test_a_transaction_that_began_before_is_not_committed_after(
    candidate: Callable[..., LeaderLease], engine: Engine
) -> None:
    """Its leader was stopped in the middle, and the next one doesn't wait for it."""
    a, b = candidate("a", seconds=0.1), candidate("b")
    assert a.acquire() == 1
    connection = engine.connect()
    fence(connection, 1)
    write(connection, 1)
    assert acquire_when_free(b) == 2
    with pytest.raises(OperationalError):
        connection.commit()
    connection.close()
    assert written(engine) == []


def test_a_transaction_that_is_about_to_end_is_waited_for(
    candidate: Callable[..., LeaderLease], engine: Engine
) -> None:
    """What is committed is seen by the next leader: it reads the tables after its acquisition."""
    a, b = candidate("a", seconds=0.01), candidate("b")
    assert a.acquire() == 1
    with ThreadPoolExecutor(1) as threads:
        with engine.begin() as connection:
            fence(connection, 1)
            write(connection, 1)
            time.sleep(0.02)
            acquisition = threads.submit(b.acquire)
            time.sleep(0.05)
            assert not acquisition.done()
        assert acquisition.result(5) == 2
    assert written(engine) == [1]


def test_renewals_and_writes_do_not_wait_for_each_other(candidate: Callable[..., LeaderLease], engine: Engine) -> None:
    """A long commit does not lose the lease, nor a renewal delay a commit."""
    a = candidate("a", seconds=60)
    assert a.acquire() == 1
    with ThreadPoolExecutor(1) as threads, engine.begin() as connection:
        fence(connection, 1)
        assert threads.submit(a.renew, 1).result(10)
        with engine.begin() as other:
            fence(other, 1)
