"""The scheduler under every interleaving that hypothesis finds."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from practicum.executor.nodes import Node
from practicum.executor.pending import Requirement
from practicum.executor.scheduler import Rollout, Scheduler, State

ANY = Requirement("tool_agent")


def make_scheduler() -> Scheduler:
    numbers = count()
    return Scheduler(lease_seconds=30.0, new_lease_id=lambda: f"lease-{next(numbers)}")


def make_node(name: str, slots: int = 4, incarnation: str = "a", kind: str = "tool_agent") -> Node:
    return Node(name, incarnation, slots, frozenset({kind}))


def make_rollouts(number: int, *, priority: int = 0, prefix: str = "t") -> list[Rollout]:
    return [Rollout(f"{prefix}/{i}", prefix, ANY, priority=priority) for i in range(number)]


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


def test_the_lower_priority_value_runs_first_and_equals_run_in_order() -> None:
    """Whatever the order of submission."""
    scheduler = make_scheduler()
    scheduler.submit(make_rollouts(2, priority=5, prefix="late"))
    scheduler.submit(make_rollouts(2, priority=-5, prefix="urgent"))
    scheduler.register(make_node("a"), [], 0.0)
    assert [lease.rollout_id for lease in scheduler.dispatch(0.0)] == ["urgent/0", "urgent/1", "late/0", "late/1"]


def test_a_rollout_that_no_node_can_run_blocks_no_other() -> None:
    """Each requirement has its own line."""
    scheduler = make_scheduler()
    scheduler.submit([Rollout("x/0", "x", Requirement("unknown_agent"), priority=-10)])
    scheduler.submit(make_rollouts(1))
    scheduler.register(make_node("a"), [], 0.0)
    assert [lease.rollout_id for lease in scheduler.dispatch(0.0)] == ["t/0"]


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


def test_attempts_end_in_a_dead_letter() -> None:
    """Back-off doubles, and after the last attempt the rollout is dead."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a"), [], 0.0)
    scheduler.submit([Rollout("t/0", "t", ANY, max_attempts=2, backoff_seconds=1.0)])
    (lease,) = scheduler.dispatch(0.0)
    scheduler.fail(lease.lease_id, "a", 0.0)
    assert scheduler.dispatch(0.5) == []
    (lease,) = scheduler.dispatch(1.0)
    rollout = scheduler.fail(lease.lease_id, "a", 1.0)
    assert rollout is not None and rollout.state is State.DEAD
    assert not scheduler.rollouts


def fresh(rollout: Rollout) -> Rollout:
    """A rollout as it comes back from the store."""
    return replace(rollout, state=State.QUEUED, lease_id=None, node_id=None, not_before=0.0)


class Interleavings(RuleBasedStateMachine):
    """Submit, dispatch, finish, fail, cancel, die, reconnect and restart, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = make_scheduler()
        self.now = 0.0
        self.submitted = 0
        self.incarnation = 0
        self.ended: list[str] = []
        self.seen_leases: list[tuple[str, str]] = []

    @rule(number=st.integers(1, 5), priority=st.integers(-1, 1))
    def submit(self, number: int, priority: int) -> None:
        self.scheduler.submit(make_rollouts(number, priority=priority, prefix=f"t{self.submitted}"))
        self.submitted += 1

    @rule(name=st.sampled_from("ab"), slots=st.integers(1, 3), keep=st.booleans(), restarted=st.booleans())
    def connect(self, name: str, slots: int, keep: bool, restarted: bool) -> None:
        self.incarnation += restarted
        before = self.scheduler.nodes.get(name)
        held = list(before.leases) if before is not None and keep else []
        node = make_node(name, slots, str(self.incarnation))
        given_up = self.scheduler.register(node, held, self.now).given_up
        self.ended += [rollout.rollout_id for rollout in given_up if rollout.state is State.DEAD]

    @rule(seconds=st.sampled_from([0.0, 0.1, 5.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.ended += [r.rollout_id for r in self.scheduler.expire(self.now) if r.state is State.DEAD]

    @rule()
    def dispatch(self) -> None:
        self.seen_leases += [(lease.lease_id, lease.node_id) for lease in self.scheduler.dispatch(self.now)]

    @precondition(lambda self: self.seen_leases)
    @rule(data=st.data(), fails=st.booleans())
    def end(self, data: st.DataObject, fails: bool) -> None:
        lease_id, node_id = data.draw(st.sampled_from(self.seen_leases))
        stands = lease_id in self.scheduler.leases
        if fails:
            rollout = self.scheduler.fail(lease_id, node_id, self.now)
        else:
            rollout = self.scheduler.finish(lease_id, node_id)
        assert (rollout is not None) == stands
        if rollout is not None and rollout.state is not State.QUEUED:
            self.ended.append(rollout.rollout_id)

    @precondition(lambda self: self.scheduler.rollouts)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        rollout_id = data.draw(st.sampled_from(sorted(self.scheduler.rollouts)))
        assert self.scheduler.cancel(rollout_id) is not None
        self.ended.append(rollout_id)

    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """The executor comes back: leases that were on disk stand, the others were never told to a node."""
        old, self.scheduler = self.scheduler, make_scheduler()
        self.scheduler.new_lease_id = old.new_lease_id
        for rollout in old.rollouts.values():
            lease = old.leases.get(rollout.lease_id or "")
            if lease is not None and data.draw(st.booleans()):
                incarnation = old.nodes[lease.node_id].incarnation
                self.scheduler.restore(fresh(rollout), replace(lease, expires_at=self.now + 30.0), incarnation)
            else:
                self.scheduler.submit([fresh(rollout)])

    @invariant()
    def every_rollout_ends_at_most_once_and_none_is_forgotten(self) -> None:
        assert len(self.ended) == len(set(self.ended))
        assert not set(self.ended) & set(self.scheduler.rollouts)
        running = {r.rollout_id for r in self.scheduler.rollouts.values() if r.state is State.RUNNING}
        assert running == {lease.rollout_id for lease in self.scheduler.leases.values()}
        assert len(self.scheduler.pending) == len(self.scheduler.rollouts) - len(running)

    @invariant()
    def nodes_and_leases_agree(self) -> None:
        held = {lease for node in self.scheduler.nodes.values() for lease in node.leases}
        assert held == set(self.scheduler.leases)


Interleavings.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestInterleavings = Interleavings.TestCase
