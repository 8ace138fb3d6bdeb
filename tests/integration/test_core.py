"""Accepting tasks on a real store: idempotent, durable, recovered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from practicum.common.errors import AlreadyExists, InvalidArgument, ResourceExhausted
from practicum.executor.changes import EndedRollout, EndRollouts, StartAttempts, StartedAttempt
from practicum.executor.core import Executor
from practicum.executor.nodes import Node
from practicum.executor.outcomes import ended
from practicum.executor.store import SqlStore
from practicum.v1 import task_pb2, trajectory_pb2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    store = SqlStore(tmp_path / "executor.db")
    yield store
    store.close()


def task(task_id: str = "", instruction: str = "open box 17", rollouts: int = 2) -> task_pb2.Task:
    agent = task_pb2.AgentSpec(kind="tool_agent")
    return task_pb2.Task(id=task_id, instruction=instruction, agent=agent, rollouts=rollouts)


def node(slots: int) -> Node:
    return Node("n", "1", slots, frozenset({"tool_agent"}))


async def test_a_repeated_submit_changes_nothing(store: SqlStore) -> None:
    """By request id for tasks without ids, by id and body for the others."""
    executor = Executor(store)
    async with executor.running():
        first = await executor.submit([task(), task("named")], request_id="request")
        again = await executor.submit([task(), task("named")], request_id="request")
    assert [t.id for t in first] == [t.id for t in again]
    assert len(executor.scheduler.rollouts) == 4


async def test_a_task_id_with_another_body_is_refused_and_nothing_is_taken(store: SqlStore) -> None:
    """Also when both come in one request."""
    executor = Executor(store)
    async with executor.running():
        await executor.submit([task("a")])
        with pytest.raises(AlreadyExists):
            await executor.submit([task("b"), task("a", "something else")])
        with pytest.raises(AlreadyExists):
            await executor.submit([task("c"), task("c", "something else")])
    assert {r.task_id for r in store.unfinished()} == {"a"}


async def test_a_full_backlog_takes_nothing_of_a_request(store: SqlStore) -> None:
    """And says when to come back."""
    executor = Executor(store, max_backlog=3)
    async with executor.running():
        await executor.submit([task("a")])
        with pytest.raises(ResourceExhausted, match="3 is the limit"):
            await executor.submit([task("b")])
    assert {r.task_id for r in store.unfinished()} == {"a"}


async def test_what_could_never_find_room_is_refused_for_good(store: SqlStore) -> None:
    """No waiting would help."""
    executor = Executor(store, max_backlog=3)
    async with executor.running():
        with pytest.raises(InvalidArgument, match="is 4; give 1 to 3"):
            await executor.submit([task("a", rollouts=4)])


async def test_a_repeat_adds_nothing_to_a_full_backlog(store: SqlStore) -> None:
    """Also of tasks that ended."""
    executor = Executor(store, max_backlog=2)
    async with executor.running():
        await executor.submit([task("a")])
        await executor.submit([task("a")])
        await executor.cancel(["a"], {}, "not wanted")
        await executor.submit([task("b")])
        await executor.submit([task("a")])
    assert {r.task_id for r in store.unfinished()} == {"b"}


async def test_requests_at_the_same_time_do_not_exceed_the_backlog(store: SqlStore) -> None:
    """Room is taken before anybody waits."""
    executor = Executor(store, max_backlog=4)
    async with executor.running():
        submits = [executor.submit([task(name)]) for name in "abc"]
        ends = await asyncio.gather(*submits, return_exceptions=True)
    assert sum(isinstance(end, ResourceExhausted) for end in ends) == 1
    assert len(executor.scheduler.rollouts) == 4


async def test_a_cancel_while_its_submit_is_written_counts(store: SqlStore) -> None:
    """The task is neither known nor unknown then."""
    executor = Executor(store)
    async with executor.running():
        submit = asyncio.create_task(executor.submit([task("a")]))
        await asyncio.sleep(0)  # The submit has asked for its commit.
        await executor.cancel(["a"], {}, "not wanted")
        await submit
    assert not executor.scheduler.rollouts
    assert store.unfinished() == []


async def test_a_change_that_is_wrong_in_itself_fails_alone(store: SqlStore) -> None:
    """The others of its batch are made, and the store goes on."""
    executor = Executor(store)
    async with executor.running():
        await executor.submit([task("a", rollouts=1)])
        wrong = EndedRollout("a/0", "a", "done", 1, float("nan"), b"")
        ends = await asyncio.gather(
            executor.writer.write(EndRollouts([wrong])), executor.submit([task("b")]), return_exceptions=True
        )
        assert isinstance(ends[0], IntegrityError)
        assert not isinstance(ends[1], BaseException)
    assert {r.task_id for r in store.unfinished()} == {"a", "b"}


async def test_a_cancel_that_overtakes_its_submit_counts(store: SqlStore) -> None:
    """Ids that are not known yet are remembered."""
    executor = Executor(store)
    async with executor.running():
        assert (await executor.cancel(["a"], {}, "not wanted")).rollouts == 0
        await executor.submit([task("a"), task("b")])
    assert {r.task_id for r in executor.scheduler.rollouts.values()} == {"b"}
    outcomes = {e.rollout_id: e.outcome for e in store.events_after(0, 10) if e.rollout_id}
    assert outcomes == {"a/0": trajectory_pb2.OUTCOME_CANCELLED, "a/1": trajectory_pb2.OUTCOME_CANCELLED}


async def test_a_restarted_executor_goes_on_with_the_attempts_it_had(store: SqlStore) -> None:
    """Nothing is lost, ended rollouts stay ended, and leases stay with the node that has them."""
    executor = Executor(store)
    async with executor.running():
        await executor.submit([task("a", rollouts=3)])
        executor.scheduler.register(node(2), [], 0.0)
        leases = executor.scheduler.dispatch(0.0)
        started = [StartedAttempt(x.rollout_id, x.attempt, x.lease_id, "n", "1") for x in leases]
        await executor.writer.write(StartAttempts(started))
        rollout = executor.scheduler.finish(leases[0].lease_id, "n")
        assert rollout is not None
        trajectory = trajectory_pb2.Trajectory(rollout_id="a/0", outcome=trajectory_pb2.OUTCOME_FINISHED)
        await executor.end([ended(rollout, trajectory, b"")], [rollout])

    restarted = Executor(store)
    assert set(restarted.scheduler.rollouts) == {"a/1", "a/2"}
    held = [leases[1].lease_id]
    assert restarted.scheduler.register(node(4), held, 0.0).given_up == []
    assert [(lease.rollout_id, lease.attempt) for lease in restarted.scheduler.dispatch(0.0)] == [("a/2", 1)]


async def test_a_caller_that_gives_up_leaves_no_task_unscheduled(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tasks are on disk, so a repeat would say that they are known: they have to be scheduled as well."""
    executor = Executor(store)
    writing, go_on, commit = threading.Event(), threading.Event(), store.commit

    def slow_commit(changes: object) -> object:
        writing.set()
        assert go_on.wait(10)
        return commit(changes)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "commit", slow_commit)
    async with executor.running():
        submit = asyncio.create_task(executor.submit([task("a")]))
        await asyncio.to_thread(writing.wait, 10)
        submit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await submit
        go_on.set()
        await executor.submit([task("a")])
        assert set(executor.scheduler.rollouts) == {"a/0", "a/1"}
