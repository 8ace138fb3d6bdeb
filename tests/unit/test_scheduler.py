"""Attempts, leases and deadlines of the scheduler."""

from __future__ import annotations

import pytest
from support.scheduling import ANY, make_node, make_rollouts, make_scheduler

from practicum.executor.scheduling.backoff import delay_seconds
from practicum.executor.scheduling.scheduler import Lease, Rollout, State


def test_a_late_result_of_a_lost_lease_is_refused() -> None:
    """Fencing: the second attempt's node is the only one that may end the rollout."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a"), [], 0.0)
    scheduler.submit(make_rollouts(1))
    (first,) = scheduler.dispatch(0.0)
    assert [rollout.state for rollout in scheduler.expire(30.0)] == [State.QUEUED]
    (second,) = scheduler.dispatch(31.0)
    assert second.attempt == 2
    assert scheduler.finish(first.lease_id, "a") is None
    assert scheduler.finish(second.lease_id, "a") is not None


def test_a_restarted_node_gives_its_leases_up_at_once() -> None:
    """A new incarnation has lost what the old one ran, whatever it claims."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a"), [], 0.0)
    scheduler.submit(make_rollouts(1))
    (lease,) = scheduler.dispatch(0.0)
    assert scheduler.register(make_node("a", incarnation="b"), [lease.lease_id], 1.0).lost_leases == [lease.lease_id]
    assert scheduler.rollouts["t/0"].state is State.QUEUED


def test_a_reconnected_node_keeps_its_leases() -> None:
    """A broken stream does not end a lease."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a"), [], 0.0)
    scheduler.submit(make_rollouts(1))
    (lease,) = scheduler.dispatch(0.0)
    assert scheduler.register(make_node("a"), [lease.lease_id], 20.0).lost_leases == []
    assert scheduler.expire(40.0) == []
    assert scheduler.finish(lease.lease_id, "a") is not None


def test_failures_end_in_a_dead_letter() -> None:
    """Back-off doubles, and after as many failures as attempts are allowed the rollout is dead."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a"), [], 0.0)
    scheduler.submit([Rollout("t/0", "t", ANY, max_attempts=3, backoff_seconds=1.0)])
    for failures, begins in enumerate([0.0, 1.0, 3.0], start=1):
        (lease,) = scheduler.dispatch(begins)
        rollout = scheduler.fail(lease.lease_id, "a", begins)
        assert rollout is not None
        assert (rollout.attempt, rollout.failures) == (failures, failures)
        assert scheduler.dispatch(begins + 0.9 * failures) == []
    assert rollout.state is State.DEAD
    assert not scheduler.rollouts


def test_attempt_numbers_go_on_while_failures_are_counted_afresh() -> None:
    """A dead letter that is put back has all its attempts again, and numbers that were never used."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a"), [], 0.0)
    scheduler.submit([Rollout("t/0", "t", ANY, max_attempts=2, backoff_seconds=0.0, attempt=7)])
    for attempt, state in ((8, State.QUEUED), (9, State.DEAD)):
        (lease,) = scheduler.dispatch(0.0)
        assert lease.attempt == attempt
        rollout = scheduler.fail(lease.lease_id, "a", 0.0)
        assert rollout is not None and rollout.state is state


@pytest.mark.parametrize(
    ("failures", "jitter", "seconds"), [(1, 0.0, 0.2), (4, 0.0, 1.6), (4, 0.5, 1.2), (5_000, 0.0, 60.0)]
)
def test_back_off_doubles_up_to_a_minute_and_is_shortened_at_random(
    failures: int, jitter: float, seconds: float
) -> None:
    """By up to half, so that what failed together does not come back together."""
    assert delay_seconds(0.2, failures, lambda: jitter) == pytest.approx(seconds)


def test_a_rollout_that_did_not_begin_in_time_is_overdue() -> None:
    """It ends; one that began in time may be tried again after its deadline."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=1), [], 0.0)
    scheduler.submit([Rollout(f"t/{i}", "t", ANY, schedule_by=5.0, backoff_seconds=0.0) for i in range(2)])
    (lease,) = scheduler.dispatch(0.0)
    assert scheduler.overdue(4.9) == []
    assert scheduler.fail(lease.lease_id, "a", 4.9) is not None
    assert [(r.rollout_id, r.state) for r in scheduler.overdue(5.0)] == [("t/1", State.OVERDUE)]
    assert [lease.rollout_id for lease in scheduler.dispatch(5.0)] == ["t/0"]


def test_it_is_known_when_something_is_due_next() -> None:
    """The end of a lease, a deadline, a retry, the silence of a node: whichever is first."""
    scheduler = make_scheduler()
    assert scheduler.next_due() is None
    scheduler.submit([Rollout("t/0", "t", ANY, schedule_by=100.0, backoff_seconds=2.0)])
    assert scheduler.next_due() == 100.0
    scheduler.register(make_node("a"), [], 5.0)
    (lease,) = scheduler.dispatch(1.0)
    assert scheduler.next_due() == 31.0
    scheduler.fail(lease.lease_id, "a", 10.0)
    assert scheduler.next_due() == 12.0
    scheduler.cancel("t/0")
    assert scheduler.next_due() == 35.0


def test_renewed_leases_stand() -> None:
    """A lease ends when it was last renewed so long ago, not when it was first to end."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a"), [], 0.0)
    scheduler.submit(make_rollouts(2))
    first, second = scheduler.dispatch(0.0)
    scheduler.heartbeat("a", [first.lease_id], 20.0)
    assert [rollout.rollout_id for rollout in scheduler.expire(30.0)] == [second.rollout_id]
    assert scheduler.expire(49.9) == []
    assert [rollout.rollout_id for rollout in scheduler.expire(50.0)] == [first.rollout_id]


def test_a_restored_lease_waits_for_its_node_and_for_no_other() -> None:
    """The same process keeps what it holds; without it, the lease expires and the next attempt begins."""
    scheduler = make_scheduler()
    for name in "ab":
        rollout = Rollout(f"{name}/0", name, ANY, attempt=1, backoff_seconds=0.0)
        scheduler.restore(rollout, Lease(f"old-{name}", f"{name}/0", name, 1, 30.0), "a")
    assert scheduler.queues["default"].running == 2
    assert scheduler.register(make_node("a"), ["old-a"], 29.0).given_up == []
    assert [rollout.rollout_id for rollout in scheduler.expire(30.0)] == ["b/0"]
    scheduler.forget_absent(30.0)
    assert list(scheduler.nodes) == ["a"]
    assert [(lease.rollout_id, lease.attempt) for lease in scheduler.dispatch(30.0)] == [("b/0", 2)]


def test_of_two_processes_of_one_node_only_one_is_restored() -> None:
    """What the other ran waits again, behind attempt numbers that were used."""
    scheduler = make_scheduler()
    for name, incarnation in (("t/0", "a"), ("t/1", "b")):
        rollout = Rollout(name, "t", ANY, attempt=1)
        scheduler.restore(rollout, Lease(f"of-{incarnation}", name, "n", 1, 30.0), incarnation)
    assert list(scheduler.leases) == ["of-a"]
    scheduler.register(make_node("other"), [], 0.0)
    assert [(lease.rollout_id, lease.attempt) for lease in scheduler.dispatch(0.0)] == [("t/1", 2)]


def test_a_group_knows_which_of_it_are_open() -> None:
    """In order, whether they wait or run."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=2), [], 0.0)
    scheduler.submit(make_rollouts(4))
    first, _ = scheduler.dispatch(0.0)
    scheduler.finish(first.lease_id, "a")
    scheduler.cancel("t/3")
    assert scheduler.group("t") == ["t/1", "t/2"]
    assert scheduler.group("unknown") == []


@pytest.mark.parametrize(("usable", "after_usable", "cut"), [(3, 0, 0), (1, 2, 0), (2, 2, 3), (5, 2, 3)])
def test_stragglers_are_cut_when_enough_of_their_group_is_usable(usable: int, after_usable: int, cut: int) -> None:
    """Never, unless it was asked for."""
    scheduler = make_scheduler()
    scheduler.submit(make_rollouts(3))
    assert len(scheduler.stragglers("t", usable=usable, after_usable=after_usable)) == cut
