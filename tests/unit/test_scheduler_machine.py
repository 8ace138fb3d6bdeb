"""The scheduler under every interleaving that hypothesis finds."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from support.scheduler_model import LEASE_SECONDS, NEEDS_GPU, NOBODY_CAN, NODES, OFFERS, PLAIN, Model, Stored

from practicum.executor.scheduling.nodes import Node
from practicum.executor.scheduling.scheduler import Lease, Rollout, State


class Interleavings(Model):
    """Nodes die, reconnect, stay silent and restart; results come twice; the executor restarts."""

    @rule(
        size=st.integers(1, 4),
        priority=st.integers(-1, 1),
        queue=st.sampled_from(["default", "light"]),
        requirement=st.sampled_from([PLAIN, PLAIN, NEEDS_GPU, NOBODY_CAN]),
        patience=st.sampled_from([None, None, 0.5, 20.0]),
        max_attempts=st.integers(1, 3),
    )
    def submit(self, size: int, patience: float | None, **spec: object) -> None:
        self.tasks += 1
        task_id = f"t{self.tasks}"
        schedule_by = None if patience is None else self.now + patience
        self.submitted += size
        for place in range(size):
            full = dict(spec, rollout_id=f"{task_id}/{place}", task_id=task_id, schedule_by=schedule_by)
            self.stored[f"{task_id}/{place}"] = Stored(full)
        self.scheduler.submit(Rollout(**s.spec) for s in self.stored.values() if s.spec["task_id"] == task_id)  # type: ignore[arg-type]

    @rule(name=st.sampled_from(NODES), slots=st.integers(1, 3), new=st.booleans(), claims_all=st.booleans())
    def connect(self, name: str, slots: int, new: bool, claims_all: bool) -> None:
        """A node dials in. A new process may claim what the old one held: it does not matter."""
        process = self.nodes[name]
        claimed = set(process.held)
        if new or not process.incarnation:
            process.incarnation, process.held, process.beside = f"i{next(self.incarnations)}", set(), 0
            claimed = claimed if claims_all else set()
        known = self.scheduler.nodes.get(name)
        keeps = known is not None and known.incarnation == process.incarnation
        before = set(known.leases) if known is not None else set()
        node = Node(name, process.incarnation, slots, frozenset({"tool_agent"}), OFFERS[name])
        registration = self.scheduler.register(node, claimed, self.now)
        process.connected, process.heard = True, self.now
        assert node.leases == (before & claimed if keeps else set())
        assert set(registration.lost_leases) == claimed - node.leases
        assert len(registration.given_up) == len(before - node.leases)
        for rollout in registration.given_up:
            self.note(rollout)
        process.held -= set(registration.lost_leases)

    @rule(name=st.sampled_from(NODES))
    def disconnect(self, name: str) -> None:
        process = self.nodes[name]
        process.connected = False
        self.scheduler.disconnect(name, process.incarnation)

    @precondition(lambda self: any(process.connected for process in self.nodes.values()))
    @rule(data=st.data(), beside=st.integers(0, 2))
    def heartbeat(self, data: st.DataObject, beside: int) -> None:
        """A node lists what it knows of; leases that are on their way to it are not in it."""
        name = data.draw(st.sampled_from([name for name, process in self.nodes.items() if process.connected]))
        process, node = self.nodes[name], self.scheduler.nodes[name]
        process.beside, process.heard = beside, self.now
        lost = self.scheduler.heartbeat(name, process.held, self.now, reported=len(process.held) + beside)
        assert set(lost) == process.held - node.leases
        assert node.foreign == beside
        process.held -= set(lost)

    @precondition(lambda self: any(process.connected for process in self.nodes.values()))
    @rule(data=st.data())
    def say(self, data: st.DataObject) -> None:
        """A node is heard, and renews nothing."""
        name = data.draw(st.sampled_from([name for name, process in self.nodes.items() if process.connected]))
        self.nodes[name].heard = self.now
        self.scheduler.hear(name, self.now)

    @precondition(lambda self: self.scheduler.nodes)
    @rule(data=st.data(), draining=st.booleans())
    def drain(self, data: st.DataObject, draining: bool) -> None:
        self.scheduler.drain(data.draw(st.sampled_from(sorted(self.scheduler.nodes))), draining=draining)

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 16.0, 31.0]))
    def pass_time(self, seconds: float) -> None:
        """The loop wakes up when something is due: afterwards nothing is."""
        self.now += seconds
        for rollout in self.scheduler.expire(self.now):
            self.note(rollout)
        for rollout in self.scheduler.overdue(self.now):
            assert rollout.state is State.OVERDUE
            self.note(rollout)
        for node in self.scheduler.forget_absent(self.now):
            assert self.nodes[node.node_id].connected
            self.nodes[node.node_id].connected = False
            assert self.nodes[node.node_id].heard + LEASE_SECONDS <= self.now
        assert all(process.heard + LEASE_SECONDS > self.now for process in self.nodes.values() if process.connected)
        assert all(n.last_seen + LEASE_SECONDS > self.now or n.leases for n in self.scheduler.nodes.values())
        assert all(lease.expires_at > self.now for lease in self.scheduler.leases.values())
        waiting = [r for r in self.scheduler.rollouts.values() if r.state is State.QUEUED and not r.attempt]
        assert all(r.schedule_by is None or r.schedule_by > self.now for r in waiting)

    @rule(data=st.data())
    def dispatch(self, data: st.DataObject) -> None:
        """What is given out was next, goes to the least loaded, and what is left nobody has room for."""
        loads = {node_id: len(node.leases) for node_id, node in self.scheduler.nodes.items()}
        leases = self.scheduler.dispatch(self.now)
        for lease in leases:
            self.check_choice(lease, loads)
            self.tell(lease, arrives=self.nodes[lease.node_id].connected and data.draw(st.booleans()))
        in_line = [r for r in self.scheduler.rollouts.values() if r.state is State.QUEUED and not r.delayed]
        assert all(r.not_before <= self.now for r in in_line)
        assert all(r.not_before > self.now for r in self.scheduler.rollouts.values() if r.delayed)
        for left in in_line:
            assert not any(n.has_room and n.meets(left.requirement) for n in self.scheduler.nodes.values())
            for lease in leases:
                self.check_order(self.scheduler.rollouts[lease.rollout_id], left)

    @precondition(lambda self: self.told)
    @rule(data=st.data(), fails=st.booleans(), somebody_else=st.booleans())
    def end(self, data: st.DataObject, fails: bool, somebody_else: bool) -> None:
        """A result of any lease there ever was, from its node or from another, for the first time or not."""
        lease_id, node_id = data.draw(st.sampled_from(self.told))
        sender = "another" if somebody_else else node_id
        stands = lease_id in self.scheduler.leases and sender == node_id
        scheduler = self.scheduler
        rollout = scheduler.fail(lease_id, sender, self.now) if fails else scheduler.finish(lease_id, sender)
        assert (rollout is not None) == stands
        if rollout is not None:
            assert fails or rollout.state is State.DONE
            self.note(rollout)
            self.nodes[node_id].held.discard(lease_id)

    @precondition(lambda self: self.stored)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        rollout = self.scheduler.cancel(data.draw(st.sampled_from(sorted(self.stored))))
        assert rollout is not None and rollout.state is State.CANCELLED
        self.note(rollout)

    @rule(data=st.data())
    def cancel_what_is_unknown_or_ended(self, data: st.DataObject) -> None:
        """A tombstone is the executor's; to the scheduler it is nothing."""
        assert self.scheduler.cancel(data.draw(st.sampled_from(["t999/0", *sorted(self.ended)]))) is None

    @precondition(lambda self: self.stored)
    @rule(data=st.data(), after_usable=st.integers(0, 2))
    def cut_stragglers(self, data: st.DataObject, after_usable: int) -> None:
        task_id = data.draw(st.sampled_from(sorted(self.stored))).split("/")[0]
        usable = sum(state is State.DONE and key.startswith(f"{task_id}/") for key, state in self.ended.items())
        cut = self.scheduler.stragglers(task_id, usable=usable, after_usable=after_usable)
        assert bool(cut) == (0 < after_usable <= usable)
        for rollout_id in cut:
            rollout = self.scheduler.cancel(rollout_id)
            assert rollout is not None
            self.note(rollout)
        assert not cut or self.scheduler.group(task_id) == []

    @rule()
    def restart(self) -> None:
        """The executor comes back with what is on disk: its nodes are not there yet."""
        self.scheduler = self.make()
        for process in self.nodes.values():
            process.connected = False
        for stored in self.stored.values():
            rollout = Rollout(**stored.spec, attempt=stored.attempt, failures=stored.failures)  # type: ignore[arg-type]
            if stored.lease is None:
                self.scheduler.submit([rollout])
            else:
                lease_id, node_id, incarnation = stored.lease
                expires_at = self.now + LEASE_SECONDS
                lease = Lease(lease_id, rollout.rollout_id, node_id, rollout.attempt, expires_at)
                self.scheduler.restore(rollout, lease, incarnation)

    def teardown(self) -> None:
        try:
            self.bring_everything_to_its_end()
        finally:
            for patch in self.patches:
                patch.stop()

    def bring_everything_to_its_end(self) -> None:
        """Whatever happened, able nodes finish what is left, and then all counts are zero."""
        for name in NODES:
            node = Node(name, "last", 2, frozenset({"tool_agent", "unknown_agent"}), NEEDS_GPU.labels)
            for rollout in self.scheduler.register(node, [], self.now).given_up:
                self.note(rollout)
        while self.scheduler.rollouts:
            for name in NODES:
                self.scheduler.hear(name, self.now)
            self.pass_time(0.0)
            leases = self.scheduler.dispatch(self.now)
            for lease in leases:
                self.tell(lease, arrives=True)
                rollout = self.scheduler.finish(lease.lease_id, lease.node_id)
                assert rollout is not None
                self.note(rollout)
            due = self.scheduler.next_due()
            assert due is None or due > self.now
            if not leases and self.scheduler.rollouts:
                assert due is not None
                self.now = due
        assert len(self.ended) == self.submitted
        assert not self.scheduler.leases and len(self.scheduler.pending) == 0
        assert all((counts.queued, counts.running) == (0, 0) for counts in self.scheduler.queues.values())
        assert all(node.load == 0.0 for node in self.scheduler.nodes.values())


Interleavings.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestInterleavings = Interleavings.TestCase
