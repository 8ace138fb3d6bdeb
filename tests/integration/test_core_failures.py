"""What was accepted is neither lost nor doubled when the store fails, or when callers cross each other's way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.core import die, give, open_tasks, task

from practicum.common.errors import AlreadyExists, ResourceExhausted, Unavailable
from practicum.executor.core import Executor, Settings
from practicum.executor.delivery.retention import Keep, Retention
from practicum.executor.store.batch import Batch
from practicum.executor.store.changes import Consumer, OpenConsumer
from practicum.executor.store.sql import SqlStore, StoreFailed
from practicum.executor.tasks.dead_letters import DeadLetters
from practicum.executor.tasks.tombstones import MAX_TOMBSTONES, Tombstones
from practicum.v1 import message_pb2

Commit = Callable[[Batch], object]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    store = SqlStore(tmp_path / "executor.db")
    yield store
    store.close()


class Gate:
    """Holds the commits that begin while it is shut."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self.reached, self._open = threading.Event(), threading.Event()
        self._open.set()

    def shut(self) -> None:
        """From the next commit on."""
        self.reached.clear()
        self._open.clear()

    def open(self) -> None:
        """Lets them go on."""
        self._open.set()

    def commit(self, batch: Batch) -> object:
        """The store's own, when the gate is open."""
        self.reached.set()
        assert self._open.wait(10)
        return self._commit(batch)


@pytest.fixture
def gate(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> Gate:
    gate = Gate(store.commit)
    monkeypatch.setattr(store, "commit", gate.commit)
    return gate


async def test_a_second_failure_does_not_refuse_what_the_first_may_have_kept(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server died in its commit, which is on disk, and could not be reached when it was tried again."""
    executor, commit, fail = Executor(store), store.commit, ["cut off", "refused"]

    def failing(batch: Batch) -> object:
        if fail and (how := fail.pop(0)) == "refused":
            raise StoreFailed("connection refused", uncertain=False)
        answers = commit(batch)
        if fail:
            raise StoreFailed(f"{how} before its answer", uncertain=True)
        return answers

    monkeypatch.setattr(store, "commit", failing)
    async with executor.running():
        submitting = asyncio.create_task(executor.submit([task("a")]))
        await asyncio.wait([submitting], timeout=1.5)
        assert not submitting.done() or submitting.exception() is None, "it may be on disk: nothing is said yet"
        await submitting
        assert set(executor.scheduler.rollouts) == {"a/0", "a/1"}
    assert open_tasks(store) == {"a"}


async def test_nothing_is_left_of_what_was_said_in_a_refused_task(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a journal would stand on disk, and a session be open for ever, of a task that nobody knows."""
    executor, commit, fail = Executor(store), store.commit, [True]

    def failing(batch: Batch) -> object:
        if fail and fail.pop():
            raise StoreFailed("the disk is full", uncertain=False)
        return commit(batch)

    monkeypatch.setattr(store, "commit", failing)
    async with executor.running():
        submitting = asyncio.create_task(executor.submit([task("a")]))
        await asyncio.sleep(0)
        executor.journal.begin("a/0", object())
        executor.journal.add([message_pb2.Message(id="m", session_id="a/0")])
        with pytest.raises(Unavailable):
            await submitting
        assert executor.journal.open_tail("a/0") is None
        await executor.submit([task("b")])
    assert store.journal("a/0", 1, 1) == []


async def test_a_cancel_waits_for_dead_letters_on_their_way_back(store: SqlStore, gate: Gate) -> None:
    """It finds them: nothing of the task runs afterwards."""
    executor = Executor(store)
    async with executor.running():
        await executor.submit([task("a")])
        for lease in give(executor, 2):
            die(executor, lease)
        await executor.writer.gather().done()
        gate.shut()
        requeue = asyncio.create_task(DeadLetters(executor).requeue(["a"], {}))
        await asyncio.to_thread(gate.reached.wait, 10)
        cancel = asyncio.create_task(executor.cancel(["a"], {}, "no more"))
        await asyncio.sleep(0.05)
        assert not cancel.done()
        gate.open()
        assert await asyncio.gather(requeue, cancel) == [2, 2]
    assert not executor.scheduler.rollouts and open_tasks(store) == set()


async def test_a_requeue_that_its_caller_left_is_not_made_twice(store: SqlStore, gate: Gate) -> None:
    """The next waits for it, and finds nothing any more."""
    executor = Executor(store)
    letters = DeadLetters(executor)
    async with executor.running():
        await executor.submit([task("a")])
        for lease in give(executor, 2):
            die(executor, lease)
        await executor.writer.gather().done()
        gate.shut()
        left = asyncio.create_task(letters.requeue(["a"], {}))
        await asyncio.to_thread(gate.reached.wait, 10)
        left.cancel()
        again = asyncio.create_task(letters.requeue(["a"], {}))
        await asyncio.sleep(0.05)
        gate.open()
        assert await again == 0
        assert set(executor.scheduler.rollouts) == {"a/0", "a/1"}


async def test_with_a_full_backlog_repeats_wait_for_the_disk_and_conflicts_are_refused(
    store: SqlStore, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a task is known is read from disk then, and others go on meanwhile."""
    executor, known_bodies = Executor(store, Settings(max_backlog=2)), store.known_bodies
    asked, answer = threading.Event(), threading.Event()

    def slow(task_ids: list[str]) -> dict[str, bytes]:
        asked.set()
        assert answer.wait(10)
        return known_bodies(task_ids)

    monkeypatch.setattr(store, "known_bodies", slow)
    async with executor.running():
        await executor.submit([task("x")])
        repeat = asyncio.create_task(executor.submit([task("a")]))
        other = asyncio.create_task(executor.submit([task("a", instruction="another")]))
        await asyncio.to_thread(asked.wait, 10)
        await executor.cancel(["x"], {}, "room")
        gate.shut()
        first = asyncio.create_task(executor.submit([task("a")]))
        await asyncio.to_thread(gate.reached.wait, 10)
        answer.set()
        with pytest.raises(AlreadyExists):
            await other
        await asyncio.sleep(0.05)
        assert not repeat.done() and not first.done(), "nothing is on disk"
        gate.open()
        assert await repeat == await first


async def test_a_cancel_of_a_task_that_ended_leaves_no_trace(store: SqlStore) -> None:
    """A repeat of its submit is told that it is known, and its session is not open again."""
    executor = Executor(store)
    async with executor.running():
        await executor.submit([task("a")])
        assert await executor.cancel(["a"], {}, "") == 2
        assert await executor.cancel(["a"], {}, "") == 0
        await executor.submit([task("a")])
        assert not executor.has_open("a/0") and executor.backlog.queues["default"].cancelled == 2
    assert store.tombstones() == {}


async def test_a_task_that_the_store_knows_is_not_ending_for_ever(store: SqlStore, gate: Gate) -> None:
    """Even if it is cancelled before the store says so."""
    executor = Executor(store)
    async with executor.running():
        await executor.submit([task("a")])
        await executor.cancel(["a"], {}, "")
        gate.shut()
        repeat = asyncio.create_task(executor.submit([task("a")]))
        await asyncio.to_thread(gate.reached.wait, 10)
        cancel = asyncio.create_task(executor.cancel(["a"], {}, ""))
        await asyncio.sleep(0.05)
        gate.open()
        await asyncio.gather(repeat, cancel)
        assert not executor.has_open("a/0")


async def test_a_large_cancel_lets_others_have_their_turn(store: SqlStore) -> None:
    """Thousands of rollouts are not ended in one turn of the loop."""
    executor = Executor(store)
    async with executor.running():
        await executor.submit([task(f"t{number}", rollouts=100) for number in range(30)])
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        before = turns
        cancelled = await executor._cancel_all([f"t{number}" for number in range(30)], "")
        counting.cancel()
        assert cancelled == 3_000 and turns - before >= 5


def test_tombstones_end_and_have_a_limit() -> None:
    """The oldest first; a later cancel prolongs."""
    tombstones = Tombstones({"old": 10.0})
    assert tombstones.of(["old", "new"], 9.0) == ["old"] and tombstones.of(["old"], 10.0) == []
    until = tombstones.add(["new"], 11.0)
    assert tombstones.of(["new"], until - 1) == ["new"]
    with pytest.raises(ResourceExhausted):
        tombstones.add([str(number) for number in range(MAX_TOMBSTONES)], 12.0)


async def test_a_consumer_that_was_connected_is_not_forgotten_after_a_restart(store: SqlStore) -> None:
    """Nobody could connect while the executor was down, and nobody has had the time to come back."""
    executor, connected = Executor(store), {"reader"}
    async with executor.running():
        await executor.writer.make(OpenConsumer(Consumer("reader", b"", 0)))
        await asyncio.sleep(0.3)
        await Retention(executor, Keep(consumer_seconds=0.2), connected).look()
        retention = Retention(executor, Keep(consumer_seconds=0.2), set())
        await retention.look()
        assert store.consumers() == {"reader": 0}
        await asyncio.sleep(0.3)
        await retention.look()
        assert store.consumers() == {}
