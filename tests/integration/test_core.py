"""Accepting tasks on a real store: idempotent, durable, recovered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.core import end, give, node, open_tasks, task

from practicum.common.errors import AlreadyExists, InvalidArgument, ResourceExhausted
from practicum.executor.core import Executor, Settings
from practicum.executor.store.batch import Batch
from practicum.executor.store.sql import SqlStore, StoreFailed
from practicum.executor.tasks.dead_letters import DeadLetters
from practicum.v1 import message_pb2, trajectory_pb2


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    store = SqlStore(tmp_path / "executor.db")
    yield store
    store.close()


async def test_a_repeated_submit_changes_nothing(store: SqlStore) -> None:
    """By request id for tasks without ids, by id and body for the others."""
    executor = Executor(store)
    async with executor.running():
        first = await executor.submit([task(), task("named")], request_id="request")
        again = await executor.submit([task(), task("named")], request_id="request")
    assert first == again
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
    assert open_tasks(store) == {"a"}


async def test_ids_of_tasks_that_ended_stay_taken(store: SqlStore) -> None:
    """A repeat is answered as before, and begins nothing; another body is refused, with all of its request."""
    executor = Executor(store)
    async with executor.running():
        await executor.submit([task("a"), task("open")])
        await executor.cancel(["a"], {}, "not wanted")
        again = await executor.submit([task("a"), task("b")])
        assert [task_id for task_id, _ in again] == ["a", "b"]
        with pytest.raises(AlreadyExists):
            await executor.submit([task("c"), task("a", "something else"), task("open")])
    assert open_tasks(store) == {"open", "b"}
    assert {rollout.task_id for rollout in executor.scheduler.rollouts.values()} == {"open", "b"}
    assert set(executor.backlog.tasks) == {"open", "b"}


async def test_a_full_backlog_takes_nothing_of_a_request(store: SqlStore) -> None:
    """And says when to come back."""
    executor = Executor(store, Settings(max_backlog=3))
    async with executor.running():
        await executor.submit([task("a")])
        with pytest.raises(ResourceExhausted, match="3 is the limit"):
            await executor.submit([task("b")])
    assert open_tasks(store) == {"a"}


async def test_what_could_never_find_room_is_refused_for_good(store: SqlStore) -> None:
    """No waiting would help."""
    executor = Executor(store, Settings(max_backlog=3))
    async with executor.running():
        with pytest.raises(InvalidArgument, match="is 4; give 1 to 3"):
            await executor.submit([task("a", rollouts=4)])


async def test_a_repeat_adds_nothing_to_a_full_backlog(store: SqlStore) -> None:
    """Also of tasks that ended."""
    executor = Executor(store, Settings(max_backlog=2))
    async with executor.running():
        await executor.submit([task("a")])
        await executor.submit([task("a")])
        await executor.cancel(["a"], {}, "not wanted")
        await executor.submit([task("b")])
        await executor.submit([task("a")])
    assert open_tasks(store) == {"b"}


async def test_requests_at_the_same_time_do_not_exceed_the_backlog(store: SqlStore) -> None:
    """Room is taken before anybody waits."""
    executor = Executor(store, Settings(max_backlog=4))
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
    assert open_tasks(store) == set()


async def test_a_cancel_that_overtakes_its_submit_counts(store: SqlStore) -> None:
    """Ids that are not known yet are remembered."""
    executor = Executor(store)
    async with executor.running():
        assert await executor.cancel(["a"], {}, "not wanted") == 0
        await executor.submit([task("a"), task("b")])
    assert {r.task_id for r in executor.scheduler.rollouts.values()} == {"b"}
    outcomes = {r.rollout_id: r.outcome for r in store.results_after(0, 10)}
    assert outcomes == {"a/0": trajectory_pb2.OUTCOME_CANCELLED, "a/1": trajectory_pb2.OUTCOME_CANCELLED}


async def test_a_restarted_executor_goes_on_with_the_attempts_it_had(store: SqlStore) -> None:
    """Nothing is lost, ended rollouts stay ended, and leases stay with the node that has them."""
    executor = Executor(store)
    async with executor.running():
        await executor.submit([task("a", rollouts=3)])
        leases = give(executor, 2)
        end(executor, leases[0].lease_id)

    restarted = Executor(store)
    assert set(restarted.scheduler.rollouts) == {"a/1", "a/2"}
    held = [leases[1].lease_id]
    assert restarted.scheduler.register(node(4), held, 0.0).given_up == []
    assert [(lease.rollout_id, lease.attempt) for lease in restarted.scheduler.dispatch(0.0)] == [("a/2", 1)]


async def test_stragglers_are_cut_once_enough_of_a_group_is_usable(store: SqlStore) -> None:
    """Only where the task wants that; what its nodes run is stopped."""
    executor = Executor(store)
    stopped: list[tuple[str, str]] = []
    executor.stop_leases = lambda leases, reason: stopped.extend(leases)
    wanted = task("a", rollouts=4)
    wanted.straggler_cutoff.after_usable = 2
    async with executor.running():
        await executor.submit([wanted])
        leases = give(executor, 3)
        end(executor, leases[0].lease_id)
        assert len(executor.scheduler.rollouts) == 3
        end(executor, leases[1].lease_id)
        assert not executor.scheduler.rollouts
    assert stopped == [("n", leases[2].lease_id)]
    results = store.results_after(0, 10)
    assert sum(r.outcome == trajectory_pb2.OUTCOME_CANCELLED for r in results) == 2
    assert [r.group_size for r in results] == [0, 0, 0, 4]


async def test_dead_letters_go_back_with_fresh_attempts(store: SqlStore) -> None:
    """Their attempts' numbers go on, their group completes anew, and a second request finds nothing."""
    executor = Executor(store)
    letters = DeadLetters(executor)
    wanted = task("a")
    wanted.retry.max_attempts = 1
    async with executor.running():
        await executor.submit([wanted])
        for lease in give(executor, 2):
            dead = executor.scheduler.fail(lease.lease_id, "n", 0.0)
            assert dead is not None
            executor.end_here([dead], trajectory_pb2.OUTCOME_INFRASTRUCTURE_ERROR, message_pb2.ErrorPayload())
        await executor.cancel([], {}, "")  # What was asked for before is on disk now.
        assert await letters.requeue(["a"], {}) == 2
        assert await letters.requeue(["a"], {}) == 0
        leases = give(executor, 2)
        assert [lease.attempt for lease in leases] == [2, 2]
        end(executor, *(lease.lease_id for lease in leases))
    results = store.results_after(0, 10)
    assert [(r.number, r.outcome, r.group_size) for r in results] == [(3, 1, 0), (4, 1, 2)]
    assert open_tasks(store) == set()


async def test_a_requeued_rollout_survives_a_restart(store: SqlStore) -> None:
    """With the number of its last attempt."""
    executor = Executor(store)
    async with executor.running():
        await executor.submit([task("a", rollouts=1)])
        (lease,) = give(executor, 1)
        rollout = executor.scheduler.rollouts["a/0"]
        rollout.max_attempts = 1
        executor.scheduler.fail(lease.lease_id, "n", 0.0)
        executor.end_here([rollout], trajectory_pb2.OUTCOME_INFRASTRUCTURE_ERROR, message_pb2.ErrorPayload())
        await executor.cancel([], {}, "")
        assert await DeadLetters(executor).requeue(["a"], {}) == 1
    restarted = Executor(store)
    assert [(lease.rollout_id, lease.attempt) for lease in give(restarted, 1, write=False)] == [("a/0", 2)]


async def test_a_queue_has_a_limit_of_its_own(store: SqlStore) -> None:
    """Others have room still."""
    executor = Executor(store, Settings(queue_limits={"small": 2}))
    async with executor.running():
        small = task("a")
        small.queue = "small"
        await executor.submit([small])
        small.id = "b"
        with pytest.raises(ResourceExhausted, match="queue small") as refused:
            await executor.submit([small])
        assert refused.value.reason == "QUEUE_FULL"
        await executor.submit([task("c")])


async def test_tasks_of_a_commit_without_an_answer_are_scheduled_once_it_is_known(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database died between its commit and its answer: to refuse them is wrong, and so is to begin them twice."""
    executor, commit, cut = Executor(store), store.commit, [True]

    def cut_off(batch: Batch) -> object:
        answers = commit(batch)
        if cut.pop() if cut else False:
            raise StoreFailed("the server closed the connection", uncertain=True)
        return answers

    monkeypatch.setattr(store, "commit", cut_off)
    async with executor.running():
        accepted = await executor.submit([task("a")])
        assert await executor.submit([task("a")]) == accepted
    assert set(executor.scheduler.rollouts) == {"a/0", "a/1"}
    assert open_tasks(store) == {"a"}


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
