"""A node that is silent is not there."""

from __future__ import annotations

from support.scheduling import make_node, make_rollouts, make_scheduler


def test_a_silent_node_is_given_nothing_more() -> None:
    """It loses what it has, so it is the least loaded: it would be given what its neighbours can run."""
    scheduler = make_scheduler()
    scheduler.register(make_node("hung"), [], 0.0)
    scheduler.submit(make_rollouts(2))
    scheduler.dispatch(0.0)
    scheduler.register(make_node("well"), [], 29.0)
    assert len(scheduler.expire(30.0)) == 2
    assert [node.node_id for node in scheduler.forget_absent(30.0)] == ["hung"]
    assert {lease.node_id for lease in scheduler.dispatch(60.0)} == {"well"}


def test_an_idle_node_that_is_silent_is_not_there_either() -> None:
    """Whoever holds nothing has no lease that would tell."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a"), [], 0.0)
    assert scheduler.forget_absent(29.9) == []
    assert scheduler.next_due() == 30.0
    assert len(scheduler.forget_absent(30.0)) == 1
    assert not scheduler.nodes and scheduler.next_due() is None


def test_whatever_a_node_says_it_is_heard() -> None:
    """A heartbeat without leases, or anything else; its leases are renewed by being listed only."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a"), [], 0.0)
    scheduler.submit(make_rollouts(1))
    scheduler.dispatch(0.0)
    scheduler.heartbeat("a", [], 20.0)
    assert len(scheduler.expire(30.0)) == 1
    assert scheduler.forget_absent(30.0) == []
    scheduler.hear("a", 45.0)
    assert scheduler.forget_absent(74.9) == []
    assert len(scheduler.forget_absent(75.0)) == 1


def test_a_silent_node_may_come_back_for_what_it_was_given_last() -> None:
    """Those leases stand until they expire."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a"), [], 0.0)
    scheduler.submit(make_rollouts(1))
    (lease,) = scheduler.dispatch(20.0)
    assert [node.connected for node in scheduler.forget_absent(30.0)] == [False]
    scheduler.register(make_node("a"), [lease.lease_id], 40.0)
    assert scheduler.nodes["a"].leases == {lease.lease_id}
    assert scheduler.forget_absent(60.0) == []
