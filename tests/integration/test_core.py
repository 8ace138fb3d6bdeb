"""Accepting tasks on a real store: idempotent, durable, recovered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from practicum.common.errors import AlreadyExists
from practicum.executor.core import Executor
from practicum.executor.nodes import Node
from practicum.executor.store import SqlStore
from practicum.v1 import task_pb2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    store = SqlStore(tmp_path / "executor.db")
    yield store
    store.close()


def task(task_id: str = "", instruction: str = "open box 17", rollouts: int = 2) -> task_pb2.Task:
    agent = task_pb2.AgentSpec(kind="tool_agent")
    return task_pb2.Task(id=task_id, instruction=instruction, agent=agent, rollouts=rollouts)


async def test_a_repeated_submit_changes_nothing(store: SqlStore) -> None:
    """By request id for tasks without ids, by id and body for the others."""
    executor = Executor(store)
    first = await executor.submit([task(), task("named")], request_id="request")
    again = await executor.submit([task(), task("named")], request_id="request")
    assert [t.id for t in first] == [t.id for t in again]
    assert len(executor.scheduler.rollouts) == 4


async def test_a_task_id_with_another_body_is_refused_and_nothing_is_taken(store: SqlStore) -> None:
    """Also when both come in one request."""
    executor = Executor(store)
    await executor.submit([task("a")])
    with pytest.raises(AlreadyExists):
        await executor.submit([task("b"), task("a", "something else")])
    with pytest.raises(AlreadyExists):
        await executor.submit([task("c"), task("c", "something else")])
    assert {r.task_id for r in store.unfinished()} == {"a"}


async def test_a_restarted_executor_goes_on_with_the_attempts_it_had(store: SqlStore) -> None:
    """Nothing is lost, ended rollouts stay ended, and attempt numbers rise on."""
    executor = Executor(store)
    await executor.submit([task("a", rollouts=3)])
    executor.scheduler.register(Node("n", "1", 2, frozenset({"tool_agent"})), [], 0.0)
    assert [lease.rollout_id for lease in await executor.dispatch()] == ["a/0", "a/1"]
    store.end([("a/0", "done", b"result")])

    restarted = Executor(store)
    restarted.scheduler.register(Node("n", "1", 4, frozenset({"tool_agent"})), [], 0.0)
    leases = await restarted.dispatch()
    assert [(lease.rollout_id, lease.attempt) for lease in leases] == [("a/1", 2), ("a/2", 1)]


async def test_a_caller_that_gives_up_leaves_no_task_unscheduled(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks are on disk, so a repeat would say that they are known: they have to be scheduled as well."""
    executor = Executor(store)
    writing, go_on, add = threading.Event(), threading.Event(), store.add

    def slow_add(*arguments: object) -> None:
        writing.set()
        assert go_on.wait(10)
        add(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "add", slow_add)
    submit = asyncio.create_task(executor.submit([task("a")]))
    await asyncio.to_thread(writing.wait, 10)
    submit.cancel()
    with pytest.raises(asyncio.CancelledError):
        await submit
    go_on.set()
    await executor.submit([task("a")])
    assert set(executor.scheduler.rollouts) == {"a/0", "a/1"}
