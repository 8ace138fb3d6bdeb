"""Leadership on a real PostgreSQL, from its acquisition until it is lost or released."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from support.candidates import SECONDS, acquire_when_free, write, written
from support.candidates import candidate as candidate
from support.candidates import engine as engine
from support.postgres import running_postgres

from practicum.executor.leadership.leading import Leadership
from practicum.executor.leadership.lease import LeaderLease, LostLeadership, fence
from practicum.executor.leadership.standby import Standby

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
