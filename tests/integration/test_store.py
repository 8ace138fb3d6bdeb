"""The store on a real file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from practicum.executor.store import SqlStore

WRITE_THEN_HANG = """
import sys, time
from pathlib import Path
from practicum.executor.store import SqlStore
store = SqlStore(Path(sys.argv[1]), durability=sys.argv[2])
store.add([("t", b"task")], [("t/0", "t"), ("t/1", "t")])
store.end([("t/0", "done", b"result")])
print("written", flush=True)
time.sleep(60)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    store = SqlStore(tmp_path / "executor.db")
    yield store
    store.close()


def test_unfinished_rollouts_come_back_in_order_of_submission(store: SqlStore) -> None:
    """With the attempts that were begun."""
    store.add([("b", b"B"), ("a", b"A")], [("b/0", "b"), ("b/1", "b"), ("a/0", "a")])
    store.start_attempts([("b/1", 2)])
    store.end([("b/0", "done", b"result")])
    assert [(r.rollout_id, r.attempt, r.task) for r in store.unfinished()] == [("b/1", 2, b"B"), ("a/0", 0, b"A")]


def test_a_rollout_keeps_its_first_result(store: SqlStore) -> None:
    """One trajectory for each rollout, whoever comes late."""
    store.add([("t", b"T")], [("t/0", "t")])
    assert store.end([("t/0", "done", b"first")]) == ["t/0"]
    assert store.end([("t/0", "cancelled", b"second")]) == []
    assert [body for _, body in store.trajectories_after(0, 10)] == [b"first"]


def test_trajectories_are_read_from_a_cursor(store: SqlStore) -> None:
    """In order of completion, a page at a time."""
    store.add([("t", b"T")], [(f"t/{i}", "t") for i in range(5)])
    store.end([(f"t/{i}", "done", bytes([i])) for i in (3, 1, 4, 0, 2)])
    page = store.trajectories_after(0, 2)
    rest = store.trajectories_after(page[-1][0], 10)
    assert [body[0] for _, body in page + rest] == [3, 1, 4, 0, 2]


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
    assert [body for _, body in store.trajectories_after(0, 10)] == [b"result"]
    store.close()
