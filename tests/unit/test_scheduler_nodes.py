"""Which node is given a rollout: loads, spare capacity, shares of fast and slow nodes."""

from __future__ import annotations

import heapq

import pytest
from support.scheduling import make_node, make_rollouts, make_scheduler

from practicum.executor.scheduling.pending import Requirement
from practicum.executor.scheduling.scheduler import Lease, Scheduler


def test_equal_nodes_share_evenly() -> None:
    """Least-loaded routing with ties that rotate."""
    scheduler = make_scheduler()
    for name in "abc":
        scheduler.register(make_node(name), [], 0.0)
    scheduler.submit(make_rollouts(9))
    scheduler.dispatch(0.0)
    assert [len(node.leases) for node in scheduler.nodes.values()] == [3, 3, 3]


def test_a_node_is_never_given_more_than_its_slots() -> None:
    """The rest waits."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=2), [], 0.0)
    scheduler.submit(make_rollouts(5))
    assert len(scheduler.dispatch(0.0)) == 2
    assert scheduler.dispatch(0.0) == []


def test_idle_nodes_share_evenly() -> None:
    """One rollout at a time, each ended before the next is given: ties rotate."""
    scheduler = make_scheduler()
    for place in range(10):
        scheduler.register(make_node(f"n{place}", slots=1 + place % 3), [], 0.0)
    for number in range(100):
        scheduler.submit(make_rollouts(1, prefix=str(number)))
        (lease,) = scheduler.dispatch(float(number))
        scheduler.finish(lease.lease_id, lease.node_id)
    assert {node.finished for node in scheduler.nodes.values()} == {10}


def test_a_load_is_what_runs_by_what_can_run() -> None:
    """A node with three times the slots gets three times as much."""
    scheduler = make_scheduler()
    scheduler.register(make_node("large", slots=6), [], 0.0)
    scheduler.register(make_node("small", slots=2), [], 0.0)
    scheduler.submit(make_rollouts(4))
    scheduler.dispatch(0.0)
    assert {node.node_id: len(node.leases) for node in scheduler.nodes.values()} == {"large": 3, "small": 1}


def simulate(scheduler: Scheduler, seconds: dict[str, float], *, completions: int) -> None:
    """Nodes that take so long for each rollout, and a backlog that is never empty."""
    now, running = 0.0, list[tuple[float, str, Lease]]()
    for number in range(completions):
        if len(scheduler.pending) < 10:
            scheduler.submit(make_rollouts(10, prefix=str(number)))
        for lease in scheduler.dispatch(now):
            heapq.heappush(running, (now + seconds[lease.node_id], lease.lease_id, lease))
        now, _, ended = heapq.heappop(running)
        assert scheduler.finish(ended.lease_id, ended.node_id) is not None
    for _, _, lease in running:
        scheduler.finish(lease.lease_id, lease.node_id)


@pytest.mark.parametrize("slots", [1, 4, 32])
def test_a_node_five_times_slower_does_a_fifth(slots: int) -> None:
    """With equal slots, as long as something waits; and when all has ended loads are zero."""
    scheduler = make_scheduler()
    for name in ("fast", "slow"):
        scheduler.register(make_node(name, slots=slots), [], 0.0)
    simulate(scheduler, {"fast": 1.0, "slow": 5.0}, completions=3_000)
    nodes = scheduler.nodes
    assert nodes["slow"].finished / nodes["fast"].finished == pytest.approx(0.2, abs=0.03)
    assert [node.load for node in nodes.values()] == [0.0, 0.0]


def test_what_a_node_runs_beside_its_leases_takes_room() -> None:
    """It says so itself; and the room comes back as soon as it says that it has ended."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=4), [], 0.0)
    scheduler.heartbeat("a", [], 0.0, reported=3)
    scheduler.submit(make_rollouts(4))
    (lease,) = scheduler.dispatch(0.0)
    assert scheduler.nodes["a"].load == 1.0
    scheduler.heartbeat("a", [lease.lease_id], 1.0, reported=2)
    assert len(scheduler.dispatch(1.0)) == 2


def test_a_figure_does_not_go_stale_when_a_lease_ends() -> None:
    """What was reported of leases is not counted once more: only what runs beside them stays."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=4), [], 0.0)
    scheduler.submit(make_rollouts(4))
    leases = scheduler.dispatch(0.0)
    scheduler.heartbeat("a", [lease.lease_id for lease in leases], 1.0, reported=4)
    for lease in leases:
        scheduler.finish(lease.lease_id, "a")
    assert scheduler.nodes["a"].load == 0.0
    scheduler.submit(make_rollouts(4, prefix="next"))
    assert len(scheduler.dispatch(2.0)) == 4


def test_a_report_that_crosses_an_assignment_counts_nothing_twice() -> None:
    """The node speaks of the leases that it lists: one on its way to it is neither missing nor beside them."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=4), [], 0.0)
    scheduler.submit(make_rollouts(2))
    known, _ = scheduler.dispatch(0.0)
    scheduler.heartbeat("a", [known.lease_id], 0.0, reported=2)
    assert scheduler.nodes["a"].foreign == 1
    assert scheduler.nodes["a"].load == 0.75


def test_a_report_that_crosses_a_cancel_takes_no_room() -> None:
    """The node is about to stop what it still lists."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=1), [], 0.0)
    scheduler.submit(make_rollouts(2))
    (lease,) = scheduler.dispatch(0.0)
    scheduler.cancel(lease.rollout_id)
    assert scheduler.heartbeat("a", [lease.lease_id], 0.0, reported=1) == [lease.lease_id]
    assert len(scheduler.dispatch(0.0)) == 1


def test_a_node_that_drains_is_given_nothing() -> None:
    """Until it takes work again; a broken stream does not change that, a new process does."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a"), [], 0.0)
    scheduler.drain("a")
    scheduler.register(make_node("a"), [], 1.0)
    scheduler.submit(make_rollouts(1))
    assert scheduler.dispatch(1.0) == []
    scheduler.drain("a", draining=False)
    assert len(scheduler.dispatch(1.0)) == 1
    scheduler.drain("a")
    scheduler.register(make_node("a", incarnation="b"), [], 2.0)
    assert len(scheduler.dispatch(10.0)) == 1


def test_a_node_needs_all_labels_of_a_task() -> None:
    """It may have others."""
    scheduler = make_scheduler()
    scheduler.register(make_node("half", gpu="yes"), [], 0.0)
    both = Requirement("tool_agent", frozenset({("gpu", "yes"), ("zone", "a")}))
    scheduler.submit(make_rollouts(1, requirement=both))
    assert scheduler.dispatch(0.0) == []
    scheduler.register(make_node("all", gpu="yes", zone="a", disk="large"), [], 0.0)
    assert [lease.node_id for lease in scheduler.dispatch(0.0)] == ["all"]


def test_a_node_that_comes_back_with_other_labels_is_another() -> None:
    """What it offered before no longer counts."""
    scheduler = make_scheduler()
    gpu = Requirement("tool_agent", frozenset({("gpu", "yes")}))
    scheduler.register(make_node("a", gpu="yes"), [], 0.0)
    scheduler.submit(make_rollouts(1, requirement=gpu))
    assert len(scheduler.dispatch(0.0)) == 1
    scheduler.register(make_node("a", incarnation="b"), [], 1.0)
    scheduler.submit(make_rollouts(1, prefix="next", requirement=gpu))
    assert scheduler.dispatch(10.0) == []


def test_absent_nodes_are_forgotten_when_they_hold_nothing() -> None:
    """After as long as a lease lasts; those that are back are not."""
    scheduler = make_scheduler()
    for name in "abc":
        scheduler.register(make_node(name), [], 0.0)
        scheduler.disconnect(name, "a")
    scheduler.register(make_node("b"), [], 10.0)
    scheduler.forget_absent(29.9)
    assert list(scheduler.nodes) == ["a", "b", "c"]
    assert scheduler.next_due() == 30.0
    scheduler.forget_absent(30.0)
    assert list(scheduler.nodes) == ["b"]
    assert scheduler.next_due() == 40.0


def test_an_absent_node_is_remembered_as_long_as_a_lease_of_it_stands() -> None:
    """It was given something just before it left, and may still bring the result."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a"), [], 0.0)
    scheduler.submit(make_rollouts(1))
    (lease,) = scheduler.dispatch(20.0)
    scheduler.disconnect("a", "a")
    scheduler.forget_absent(30.0)
    assert scheduler.finish(lease.lease_id, "a") is not None
    scheduler.forget_absent(50.0)
    assert not scheduler.nodes


def test_the_end_of_an_older_stream_does_not_disconnect_its_successor() -> None:
    """The news of it may come late."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", incarnation="old"), [], 0.0)
    scheduler.register(make_node("a", incarnation="new"), [], 1.0)
    scheduler.disconnect("a", "old")
    scheduler.submit(make_rollouts(1))
    assert len(scheduler.dispatch(1.0)) == 1


def test_a_node_that_comes_back_still_runs_what_it_ran_beside() -> None:
    """The same process does; of a new one nothing is known yet."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a"), [], 0.0)
    scheduler.heartbeat("a", [], 0.0, reported=3)
    scheduler.register(make_node("a"), [], 1.0)
    assert scheduler.nodes["a"].load == 0.75
    scheduler.register(make_node("a", incarnation="b"), [], 2.0)
    assert scheduler.nodes["a"].load == 0.0
