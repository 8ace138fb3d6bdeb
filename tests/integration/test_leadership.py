"""Leadership on a real PostgreSQL: one leads, and who led before can write nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, create_engine, make_url, text
from sqlalchemy.exc import OperationalError
from support.postgres import running_postgres

from practicum.executor.leadership.leading import Leadership, place_of
from practicum.executor.leadership.lease import Candidate, LeaderLease, LostLeadership, fence
from practicum.executor.leadership.standby import Standby

SECONDS = 1.0
# Leads, and writes row after row until it can't: prints `leads` then, and at the end why it ended.
WRITER = """
import asyncio, sys, time
from sqlalchemy import create_engine, make_url, text
from practicum.executor.leadership.lease import Candidate, LeaderLease, LostLeadership
from practicum.executor.leadership.standby import Standby

async def main():
    url, place, seconds = make_url(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    leadership = await Standby(LeaderLease(url, Candidate(place, place, place), seconds=seconds)).wait()
    engine = create_engine(url)
    print("leads", flush=True)
    while True:
        try:
            with engine.begin() as connection:
                leadership.fence(connection)
                connection.execute(text("INSERT INTO writes (epoch) VALUES (:epoch)"), {"epoch": leadership.epoch})
                # Most stops fall into an open transaction.
                time.sleep(0.01)
        except Exception as error:
            print(type(error).__name__, leadership.held, flush=True)
            if isinstance(error, LostLeadership):
                return

asyncio.run(main())
"""


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


def test_a_renewed_lease_is_kept(candidate: Callable[..., LeaderLease]) -> None:
    """For longer than one lease."""
    a, b = candidate("a"), candidate("b")
    leadership = Leadership(a, a.acquire() or 0, acquired_at=time.monotonic())
    until = time.monotonic() + 2 * SECONDS
    while time.monotonic() < until:
        assert b.acquire() is None
        time.sleep(0.05)
    assert leadership.held
    leadership.release()


def test_a_released_lease_is_free_at_once(candidate: Callable[..., LeaderLease]) -> None:
    """Nobody waits for a leader that left."""
    a, b = candidate("a", seconds=60), candidate("b")
    leadership = Leadership(a, a.acquire() or 0, acquired_at=time.monotonic())
    leadership.release()
    assert b.leader() is None
    assert b.acquire() == 2


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


def test_a_leader_that_cannot_renew_stops_by_its_own_clock(
    candidate: Callable[..., LeaderLease], engine: Engine
) -> None:
    """Even though the row still says that it leads."""
    now = 100.0
    a = candidate("a", seconds=60)
    leadership = Leadership(a, a.acquire() or 0, acquired_at=now, clock=lambda: now)
    assert leadership.held
    now = 160.0
    assert not leadership.held
    with pytest.raises(LostLeadership), engine.begin() as connection:
        leadership.fence(connection)
    leadership.release()


@pytest.mark.processes
def test_a_restart_of_the_database_leaves_the_leader(candidate: Callable[..., LeaderLease]) -> None:
    """If it is back within the lease."""
    with running_postgres() as postgres:
        url = postgres.new_database()
        a, b = candidate("a", seconds=4, url=url), candidate("b", url=url)
        leadership = Leadership(a, a.acquire() or 0, acquired_at=time.monotonic())
        postgres.kill()
        postgres.start()
        until = time.monotonic() + 4.5
        while time.monotonic() < until:
            assert leadership.held
            time.sleep(0.05)
        assert attempt(b.acquire) is None
        leadership.release()
        a.close()
        b.close()


@pytest.mark.processes
async def test_a_leader_without_a_database_gives_up(candidate: Callable[..., LeaderLease]) -> None:
    """Within its lease; a standby leads once the database is back."""
    with running_postgres() as postgres:
        url = postgres.new_database()
        a, b = candidate("a", url=url), candidate("b", url=url)
        leadership = Leadership(a, a.acquire() or 0, acquired_at=time.monotonic())
        standby = asyncio.create_task(Standby(b).wait())
        postgres.kill()
        await asyncio.wait_for(leadership.lost(), SECONDS + 1)
        await asyncio.to_thread(postgres.start)
        async with asyncio.timeout(SECONDS + 5):
            following = await standby
        assert following.epoch == 2
        assert not leadership.held
        await asyncio.to_thread(following.release)
        a.close()
        b.close()


async def test_a_standby_leads_when_the_leader_leaves(candidate: Callable[..., LeaderLease]) -> None:
    """And knows meanwhile who leads."""
    a, b = candidate("a", seconds=60), candidate("b")
    leadership = Leadership(a, a.acquire() or 0, acquired_at=time.monotonic())
    standby = Standby(b)
    waiting = asyncio.create_task(standby.wait())
    async with asyncio.timeout(10):
        while not standby.leader:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert standby.leader == "a:50051"
        await asyncio.to_thread(leadership.release)
        following = await waiting
    assert following.held
    await asyncio.to_thread(following.release)


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_standby_leads_when_the_leader_is_gone(
    number: signal.Signals, candidate: Callable[..., LeaderLease], engine: Engine, postgres_url: str
) -> None:
    """Within the lease. A stopped leader that goes on later writes nothing, and finds out."""
    lease = candidate("b")
    with writer(postgres_url, "a") as process:
        time.sleep(SECONDS)
        process.send_signal(number)
        began = time.monotonic()
        epoch = acquire_when_free(lease)
        assert time.monotonic() - began < SECONDS + 1
        before = written(engine)
        assert len(before) > 10 and set(before) == {1} and epoch == 2
        with engine.begin() as connection:
            fence(connection, epoch)
            write(connection, epoch)
        process.send_signal(signal.SIGCONT)
        said, _ = process.communicate(timeout=10)
        if number is signal.SIGSTOP:
            assert said.splitlines()[-1] == "LostLeadership False"
    assert written(engine) == [*before, 2]


@contextmanager
def writer(url: str, place: str) -> Iterator[subprocess.Popen[str]]:
    """A process that leads and writes."""
    command = [sys.executable, "-c", WRITER, url, place, str(SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"NO_COLOR": "1"}) as process:
        try:
            assert process.stdout is not None
            while process.stdout.readline() != "leads\n":
                assert process.poll() is None
            yield process
        finally:
            process.kill()


def attempt(call: Callable[[], int | None]) -> int | None:
    """Calls; a connection that a restart broke is made anew by the next call."""
    try:
        return call()
    except OperationalError:
        return call()
