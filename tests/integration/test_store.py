"""The store: one suite over SQLite and PostgreSQL, and what is of a file alone."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from practicum.common.errors import ConfigError
from practicum.executor.delivery.retention import ExpireConsumers, Prune
from practicum.executor.leadership.lease import LostLeadership
from practicum.executor.store.batch import Batch, TasksKnown
from practicum.executor.store.changes import BuryTasks, Consumer, DeadLetter, ForgetConsumer, OpenConsumer, Requeue
from practicum.executor.store.cursors import group_cursor, trajectory_cursor
from practicum.executor.store.rows import AttemptRow, JournalRow, ResultRow, TaskRow
from practicum.executor.store.sql import SqlStore

WRITE_THEN_HANG = """
import sys, time
sys.path.insert(0, sys.argv[3])
from test_store import filled
from practicum.common.logging import configure_logging
from practicum.executor.store.sql import SqlStore
configure_logging()
filled(SqlStore(sys.argv[1], durability=sys.argv[2]))
print("written", flush=True)
time.sleep(60)
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What `--database` may be given: the path of a file, or the URL of an empty database."""
    return str(tmp_path / "executor.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


@pytest.fixture
def store(database: str) -> Iterator[SqlStore]:
    store = SqlStore(database)
    yield store
    store.close()


def commit(store: SqlStore, fill: Callable[[Batch], Any]) -> list[Any]:
    """Writes one batch."""

    async def write() -> list[Any]:
        batch = Batch()
        fill(batch)
        return store.commit(batch)

    return asyncio.run(write())


def ignore(rows: object) -> None:
    """Nobody has to take anything back."""


def task_row(number: int, task_id: str, rollouts: int = 1, labels: str = "{}") -> TaskRow:
    return TaskRow(number, task_id, "default", labels, "", rollouts, 1.0, True, task_id.encode())


def result_row(number: int, task: int, place: int = 0, *, state: str = "done", completes: bool = False) -> ResultRow:
    return ResultRow(number, task, place, state, 1, "node", 1, 1.0, completes, time.time(), 6)


def filled(store: SqlStore) -> SqlStore:
    """Task 1 `t` of two rollouts: the first has ended, the second is at work. Task 2 `u` waits."""
    commit(store, lambda batch: batch.add_tasks([task_row(1, "t", 2), task_row(2, "u")], ignore))
    commit(store, lambda batch: batch.put_attempt(AttemptRow(1, 0, 1, 0, "l0", "node", "life")))
    commit(store, lambda batch: batch.put_attempt(AttemptRow(1, 1, 2, 1, "l1", "node", "life")))
    commit(store, lambda batch: batch.end_rollout(result_row(1, 1), b"result"))
    return store


def test_what_is_open_comes_back_in_order_of_submission(store: SqlStore) -> None:
    """With the attempts and the leases that were given, and what ended."""
    filled(store)
    assert [(t.task_id, t.rollouts, t.body) for t in store.open_tasks()] == [("t", 2, b"t"), ("u", 1, b"u")]
    assert [(e.place, e.state, e.number) for e in store.open_tasks()[0].ended] == [(0, "done", 1)]
    assert store.attempts() == {(1, 1): AttemptRow(1, 1, 2, 1, "l1", "node", "life")}
    assert store.last_numbers() == (2, 1)


def test_a_batch_that_is_written_twice_is_as_if_written_once(store: SqlStore) -> None:
    """Nobody knows what came of a commit that was cut off: it is repeated."""

    async def twice() -> None:
        batch = Batch()
        batch.add_tasks([task_row(1, "t", 2)], ignore)
        batch.put_attempt(AttemptRow(1, 1, 1, 0, "l", "n", "i"))
        batch.end_rollout(result_row(1, 1), b"result")
        batch.messages.append(JournalRow("t/0", 1, "m", b"message"))
        batch.make(BuryTasks(["x"], time.time() + 60))
        batch.make(OpenConsumer(Consumer("c", b"", 0)))
        store.commit(batch)
        store.commit(batch)

    asyncio.run(twice())
    assert [r.body for r in store.results_after(0, 10)] == [b"result"]
    assert store.journal("t/0", 1, 10) == [(1, b"message")]
    assert list(store.tombstones()) == ["x"]


def test_a_task_whose_id_is_taken_is_told_with_nothing_written(store: SqlStore) -> None:
    """Whether it is a repeat or another task is for whoever asked to say."""
    filled(store)

    def fill(batch: Batch) -> None:
        batch.add_tasks([task_row(3, "new"), task_row(4, "t")], ignore)

    with pytest.raises(TasksKnown) as known:
        commit(store, fill)
    assert known.value.bodies == {"t": b"t"}
    assert store.known_bodies(["new"]) == {}


def test_a_closed_task_is_open_no_more(store: SqlStore) -> None:
    """Its id stays known."""
    filled(store)
    commit(store, lambda batch: batch.end_rollout(result_row(2, 1, 1, completes=True), b"second"))
    assert [t.task_id for t in store.open_tasks()] == ["u"]
    assert store.attempts() == {}
    assert store.known_bodies(["t", "x"]) == {"t": b"t"}
    assert [r.group_size for r in store.results_after(0, 10)] == [0, 2]


def test_results_are_read_from_a_cursor(store: SqlStore) -> None:
    """In order of completion, a page at a time; a group's completion comes after its last trajectory."""
    commit(store, lambda batch: batch.add_tasks([task_row(1, "t", 5)], ignore))
    for number, place in enumerate((3, 1, 4, 0), start=1):
        commit(store, lambda batch, n=number, p=place: batch.end_rollout(result_row(n, 1, p), b""))
    commit(store, lambda batch: batch.end_rollout(result_row(5, 1, 2, completes=True), b""))
    page = store.results_after(0, 2)
    rest = store.results_after(trajectory_cursor(page[-1].number), 10)
    assert [r.rollout_id for r in page] == ["t/3", "t/1"]
    assert [r.rollout_id for r in rest if r.number > page[-1].number] == ["t/4", "t/0", "t/2"]
    assert [r.number for r in store.results_after(trajectory_cursor(5), 10)] == [5]
    assert store.results_after(group_cursor(5), 10) == []
    assert [r.number for r in store.results_after(0, 10, rollout_ids=["t/0", "t/2", "t/x", "\0", "t/01"])] == [4, 5]


def test_sessions_are_known_by_their_rollouts(store: SqlStore) -> None:
    """And nothing else is."""
    filled(store)
    assert [store.knows_session(s) for s in ("t/0", "t/1", "t/2", "t", "", "t/-1", "\0/0")] == [
        True,
        True,
        *[False] * 5,
    ]


def test_a_consumer_keeps_its_first_filter_and_its_position(store: SqlStore) -> None:
    """Until it is forgotten."""
    filled(store)
    opened = [Consumer("c", b"filter", 0), Consumer("c", b"other", 5), Consumer("new", b"", -1)]
    kept = [commit(store, lambda batch, c=c: batch.make(OpenConsumer(c)))[0] for c in opened]
    assert kept == [opened[0], opened[0], Consumer("new", b"", group_cursor(1))]
    commit(store, lambda batch: batch.acks.update({"c": 3}))
    assert commit(store, lambda batch: batch.make(OpenConsumer(opened[0])))[0].cursor == 3
    commit(store, lambda batch: batch.make(ForgetConsumer("c")))
    assert commit(store, lambda batch: batch.make(OpenConsumer(opened[1])))[0] == opened[1]


def test_unused_consumers_are_forgotten(store: SqlStore) -> None:
    """Those with an open stream are not."""
    for name in ("a", "b"):
        commit(store, lambda batch, n=name: batch.make(OpenConsumer(Consumer(n, b"", 0))))
    assert commit(store, lambda batch: batch.make(ExpireConsumers(time.time() - 60, []))) == [[]]
    assert commit(store, lambda batch: batch.make(ExpireConsumers(time.time() + 60, ["b"]))) == [["a"]]


def test_only_what_every_consumer_acked_is_pruned(store: SqlStore) -> None:
    """By age or by size; nothing while there is no consumer."""
    commit(store, lambda batch: batch.add_tasks([task_row(1, "t", 4)], ignore))
    for number in range(1, 5):
        commit(store, lambda batch, n=number: batch.end_rollout(result_row(n, 1, n - 1), b"result"))
        commit(store, lambda batch, n=number: batch.messages.append(JournalRow(f"t/{n - 1}", 1, "m", b"")))
    all_stale, half = Prune(math.inf, 0), Prune(-math.inf, store.stored_bytes() - 12)
    assert commit(store, lambda batch: batch.make(all_stale)) == [(0, 0)]
    for name, cursor in (("ahead", group_cursor(4)), ("behind", trajectory_cursor(3))):
        commit(store, lambda batch, n=name, c=cursor: batch.make(OpenConsumer(Consumer(n, b"", c))))
    assert commit(store, lambda batch: batch.make(half)) == [(2, 12)]
    assert store.stored_bytes() == 12
    assert [r.number for r in store.results_after(0, 10)] == [3, 4]
    nothing = commit(store, lambda batch: batch.make(all_stale))
    assert nothing == [(0, 0)]  # `behind` has its third event, and not what follows.
    commit(store, lambda batch: batch.acks.update({"behind": group_cursor(3)}))
    assert commit(store, lambda batch: batch.make(all_stale)) == [(1, 6)]
    assert [store.journal(f"t/{place}", 1, 1) != [] for place in range(4)] == [False, False, False, True]
    assert [e.state for e in store.tasks(["t"])[0].ended] == ["done"] * 4


def test_dead_letters_are_taken_back(store: SqlStore) -> None:
    """Their task is open again, their trajectories are gone, and no result's number is used twice."""
    filled(store)
    commit(store, lambda batch: batch.end_rollout(result_row(2, 1, 1, state="dead", completes=True), b"dead"))
    assert [t.task_id for t in store.tasks_before(10, 10, states=["dead"])] == ["t"]
    commit(store, lambda batch: batch.make(Requeue([DeadLetter(1, 1, 3, 2)], next_result=2)))
    assert [t.task_id for t in store.open_tasks()] == ["t", "u"]
    assert store.attempts() == {(1, 1): AttemptRow(1, 1, 3, 0)}
    assert [r.body for r in store.results_after(0, 10)] == [b"result"]
    assert store.last_numbers() == (2, 2)


@pytest.mark.parametrize("durability", ["full", "process"])
def test_kill_9_loses_nothing_that_was_written(database: str, durability: str) -> None:
    """The process dies without a chance to close the database."""
    command = [sys.executable, "-c", WRITE_THEN_HANG, database, durability, str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "written\n"
        os.kill(process.pid, signal.SIGKILL)
    store = SqlStore(database, durability=durability)
    assert list(store.attempts()) == [(1, 1)]
    assert [r.body for r in store.results_after(0, 10)] == [b"result"]
    store.close()


def test_a_refused_transaction_writes_nothing(database: str) -> None:
    """The fence speaks first."""
    led = [True]

    def fence(connection: Connection) -> None:
        if not led[0]:
            raise LostLeadership

    store = SqlStore(database, fence=fence)
    commit(store, lambda batch: batch.add_tasks([task_row(1, "t")], ignore))
    led[0] = False
    with pytest.raises(LostLeadership):
        commit(store, lambda batch: batch.add_tasks([task_row(2, "u")], ignore))
    assert [t.task_id for t in store.open_tasks()] == ["t"]
    store.close()
    with pytest.raises(LostLeadership):
        SqlStore(database, fence=fence)


def test_two_executors_on_one_file_are_refused(tmp_path: Path) -> None:
    """Both would give out its work."""
    path = tmp_path / "executor.db"
    store = SqlStore(path)
    with pytest.raises(ConfigError, match="another executor has it open"):
        SqlStore(path)
    store.close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    """And nothing is written over it."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but twenty lines of notes\n" * 20)
    with pytest.raises(ConfigError, match=r"notes\.txt: file is not a database"):
        SqlStore(path)


@pytest.mark.parametrize("wrong", ["mysql://a@b/c", "sqlite://", "postgresql://user:secret@[/x", "://"])
def test_other_databases_are_refused(wrong: str) -> None:
    """With what would be right, and without a password."""
    with pytest.raises(ConfigError) as refused:
        SqlStore(wrong)
    assert "secret" not in str(refused.value)


def test_a_database_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The password is not."""
    with pytest.raises(ConfigError, match=r"postgresql\+psycopg://user:\*\*\*@/name") as refused:
        SqlStore(f"postgresql://user:secret@/name?host={tmp_path}")
    assert "secret" not in str(refused.value)
