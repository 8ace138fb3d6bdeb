"""The store on a real file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from practicum.common.errors import ConfigError
from practicum.executor.changes import AddTasks, EndedRollout, EndRollouts, NewTask, StartAttempts, StartedAttempt
from practicum.executor.store import SqlStore
from practicum.v1 import executor_pb2

WRITE_THEN_HANG = """
import sys, time
from pathlib import Path
from practicum.executor.changes import AddTasks, EndedRollout, EndRollouts, NewTask
from practicum.executor.store import SqlStore
store = SqlStore(Path(sys.argv[1]), durability=sys.argv[2])
store.commit([AddTasks([NewTask("t", "default", "{}", b"task", ["t/0", "t/1"])])])
store.commit([EndRollouts([EndedRollout("t/0", "t", "done", 1, 1.0, b"result")])])
print("written", flush=True)
time.sleep(60)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    store = SqlStore(tmp_path / "executor.db")
    yield store
    store.close()


def add(store: SqlStore, task_id: str, rollouts: int = 1) -> None:
    ids = [f"{task_id}/{i}" for i in range(rollouts)]
    store.commit([AddTasks([NewTask(task_id, "default", "{}", task_id.encode(), ids)])])


def end(store: SqlStore, *rollout_ids: str, body: bytes = b"result", state: str = "done") -> list[object]:
    ended = [EndedRollout(r, r.split("/")[0], state, 1, 1.0, body) for r in rollout_ids]
    return store.commit([EndRollouts(ended)])


def test_unfinished_rollouts_come_back_in_order_of_submission(store: SqlStore) -> None:
    """With the attempts and the leases that were given."""
    add(store, "b", 2)
    add(store, "a")
    store.commit([StartAttempts([StartedAttempt("b/1", 2, "lease", "node", "life")])])
    end(store, "b/0")
    rows = [(r.rollout_id, r.attempt, r.lease_id, r.node_id, r.incarnation, r.task) for r in store.unfinished()]
    assert rows == [("b/1", 2, "lease", "node", "life", b"b"), ("a/0", 0, "", "", "", b"a")]


def test_a_rollout_keeps_its_first_result(store: SqlStore) -> None:
    """One trajectory for each rollout, whoever comes late."""
    add(store, "t")
    assert end(store, "t/0", body=b"first") == [["t/0"]]
    assert end(store, "t/0", body=b"second", state="cancelled") == [[]]
    assert [e.body for e in store.events_after(0, 10) if e.rollout_id] == [b"first"]


def test_a_group_is_complete_once_its_last_rollout_ended(store: SqlStore) -> None:
    """The event comes after that rollout's, and names all."""
    add(store, "t", 2)
    end(store, "t/1")
    end(store, "t/0")
    events = store.events_after(0, 10)
    assert [e.rollout_id for e in events] == ["t/1", "t/0", ""]
    assert list(executor_pb2.GroupComplete.FromString(events[-1].body).rollout_ids) == ["t/0", "t/1"]


def test_events_are_read_from_a_cursor(store: SqlStore) -> None:
    """In order of completion, a page at a time."""
    add(store, "t", 5)
    for index in (3, 1, 4, 0):
        end(store, f"t/{index}")
    page = store.events_after(0, 2)
    rest = store.events_after(page[-1].cursor, 10)
    assert [e.rollout_id for e in page + rest] == ["t/3", "t/1", "t/4", "t/0"]


def test_two_executors_on_one_file_are_refused(store: SqlStore, tmp_path: Path) -> None:
    """Both would give out its work."""
    with pytest.raises(ConfigError, match="another executor has it open"):
        SqlStore(tmp_path / "executor.db")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    """And nothing is written over it."""
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but twenty lines of notes\n" * 20)
    with pytest.raises(ConfigError, match=r"notes\.txt: file is not a database"):
        SqlStore(path)


@pytest.mark.parametrize("durability", ["full", "process"])
def test_kill_9_loses_nothing_that_was_written(tmp_path: Path, durability: str) -> None:
    """The process dies without a chance to close the file."""
    path = tmp_path / "executor.db"
    command = [sys.executable, "-c", WRITE_THEN_HANG, str(path), durability]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "written\n"
        os.kill(process.pid, signal.SIGKILL)
    store = SqlStore(path, durability=durability)
    assert [r.rollout_id for r in store.unfinished()] == ["t/1"]
    assert [e.body for e in store.events_after(0, 10)] == [b"result"]
    store.close()
