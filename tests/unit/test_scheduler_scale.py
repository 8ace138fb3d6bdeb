"""What the scheduler costs with many rollouts and many nodes: instructions and bytes, which no busy machine changes."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from support.scheduling import ANY, make_node, make_rollouts, make_scheduler

from practicum.executor.scheduling.pending import Requirement
from practicum.executor.scheduling.scheduler import Lease, Rollout, Scheduler

NOBODY_CAN = Requirement("unknown_agent")


def instructions(action: Callable[[], object]) -> int:
    """The Python instructions that something takes."""
    counted = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal counted
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        counted += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return counted


@contextmanager
def traced_memory() -> Iterator[Callable[[], int]]:
    """Gives the bytes that were taken since."""
    gc.collect()
    tracemalloc.start()

    def taken() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    try:
        yield taken
    finally:
        tracemalloc.stop()


def busy(*, queued: int, nodes: int) -> tuple[Scheduler, list[Lease]]:
    """Every slot is taken, and so many wait."""
    scheduler = make_scheduler()
    for place in range(nodes):
        scheduler.register(make_node(f"n{place}", slots=2_000 // nodes, host=f"h{place}"), [], 0.0)
    for group in range((queued + 2_000) // 1_000):
        scheduler.submit(make_rollouts(1_000, prefix=str(group)))
    return scheduler, scheduler.dispatch(0.0)


def cost_of_a_decision(*, queued: int, nodes: int) -> float:
    """A rollout ends, and another gets its place."""
    scheduler, leases = busy(queued=queued, nodes=nodes)

    def turn() -> None:
        for lease in leases[:500]:
            scheduler.finish(lease.lease_id, lease.node_id)
            assert len(scheduler.dispatch(1.0)) == 1

    return instructions(turn) / 500


def test_a_decision_costs_the_same_with_many_rollouts_and_many_nodes() -> None:
    """A hundred times as many of either make it at most a fifth dearer."""
    few = cost_of_a_decision(queued=1_000, nodes=2)
    assert cost_of_a_decision(queued=100_000, nodes=2) <= 1.2 * few
    assert cost_of_a_decision(queued=1_000, nodes=1_000) <= 1.2 * few


def test_a_decision_costs_little_more_where_many_wait_for_what_nobody_offers() -> None:
    """They stand in lines that are not looked at."""
    scheduler, leases = busy(queued=1_000, nodes=2)
    first, second = leases[:2]

    def turn(lease: Lease) -> None:
        scheduler.finish(lease.lease_id, lease.node_id)
        assert len(scheduler.dispatch(1.0)) == 1

    few = instructions(lambda: turn(first))
    for number in range(1_000):
        unable = Requirement("tool_agent", frozenset({("host", f"unknown-{number}")}))
        scheduler.submit(make_rollouts(1, prefix=f"unable-{number}", requirement=unable))
    assert scheduler.dispatch(1.0) == []
    assert instructions(lambda: turn(second)) <= 1.5 * few


def test_to_find_nothing_due_costs_nothing() -> None:
    """However many leases stand and nodes are absent: renewing them is what costs."""
    scheduler, leases = busy(queued=1_000, nodes=1_000)
    for node in list(scheduler.nodes.values()):
        scheduler.heartbeat(node.node_id, list(node.leases), 10.0)
    for place in range(900):
        scheduler.disconnect(f"n{place}", "a")
    assert len(leases) == 2_000

    def look() -> None:
        assert scheduler.expire(20.0) == scheduler.overdue(20.0) == []
        scheduler.forget_absent(20.0)
        assert scheduler.dispatch(20.0) == []
        assert scheduler.next_due() is not None

    assert instructions(look) < 500


@pytest.mark.parametrize("group", [1, 8])
def test_a_queued_rollout_takes_less_than_700_bytes(group: int) -> None:
    """Its ids, times and place in a group included."""
    scheduler = make_scheduler()
    with traced_memory() as taken:
        for number in range(20_000 // group):
            task_id, now = f"{number:032x}", number + 0.5
            requirement = Requirement("tool_agent", frozenset({("gpu", "yes")}))
            scheduler.submit(
                Rollout(f"{task_id}/{place}", task_id, requirement, queued_at=now, schedule_by=now + 60.0)
                for place in range(group)
            )
        assert taken() / 20_000 < 700


def circulate(scheduler: Scheduler, numbers: range) -> None:
    """Everything that comes is new, and goes: nodes, queues, priorities, requirements, rollouts."""
    for number in numbers:
        now, name = float(number), f"n{number}"
        requirement = Requirement("tool_agent", frozenset({("host", name)}))
        rollout = Rollout(
            f"{name}/0", name, ANY if number % 2 else requirement, f"q{number}", number, schedule_by=now + 1e6
        )
        scheduler.register(make_node(name, host=name), [], now)
        scheduler.submit([rollout])
        for priority in (0, number):
            prefix = f"cancelled-{number}-{priority}"
            scheduler.submit(make_rollouts(1, prefix=prefix, priority=priority, requirement=NOBODY_CAN))
            scheduler.cancel(f"{prefix}/0")
        (lease,) = scheduler.dispatch(now)
        scheduler.heartbeat(lease.node_id, [lease.lease_id], now)
        scheduler.finish(lease.lease_id, lease.node_id)
        scheduler.disconnect(name, "a")
        scheduler.forget_absent(now)


def test_what_has_gone_takes_no_memory() -> None:
    """After three times as much has passed through, no more is taken; though somebody in line stands through it all."""
    scheduler = make_scheduler()
    scheduler.submit(make_rollouts(1, prefix="standing", priority=-1, requirement=NOBODY_CAN))
    scheduler.submit(make_rollouts(1, prefix="standing too", requirement=NOBODY_CAN))
    with traced_memory() as taken:
        circulate(scheduler, range(1_000))
        before = taken()
        circulate(scheduler, range(1_000, 4_000))
        assert taken() < before + 100_000


def test_nodes_that_have_gone_take_no_memory() -> None:
    """Though nothing waits, so that nobody looks for a node."""
    scheduler = make_scheduler()
    scheduler.register(make_node("stays"), [], 0.0)
    scheduler.submit(make_rollouts(1))
    scheduler.dispatch(0.0)

    def come_and_go(numbers: range) -> None:
        for number in numbers:
            scheduler.register(make_node(f"n{number}"), [], float(number))
            scheduler.disconnect(f"n{number}", "a")
            scheduler.forget_absent(float(number))

    with traced_memory() as taken:
        come_and_go(range(1_000))
        before = taken()
        come_and_go(range(1_000, 4_000))
        assert taken() < before + 100_000


def test_a_node_is_not_looked_for_where_nothing_waits_any_more() -> None:
    """Requirements that have passed cost nothing at each change of its load."""
    scheduler = make_scheduler()
    labels = [(f"label-{place}", "yes") for place in range(10)]
    scheduler.register(make_node("a", **dict(labels)), [], 0.0)
    for number in range(1_000):
        wanted = frozenset(label for place, label in enumerate(labels) if number >> place & 1)
        scheduler.submit(make_rollouts(1, prefix=str(number), requirement=Requirement("tool_agent", wanted)))
        (lease,) = scheduler.dispatch(0.0)
        scheduler.finish(lease.lease_id, "a")
    assert len(scheduler.nodes["a"].pools) < 200


def test_retries_that_were_cancelled_are_let_go() -> None:
    """Though nobody serves the line in which they stood: all but a few, which the next sweep takes."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=4_000), [], 0.0)
    before = living_rollouts()
    scheduler.submit(make_rollouts(4_000))
    for lease in scheduler.dispatch(0.0):
        scheduler.fail(lease.lease_id, "a", 0.0)
    scheduler.disconnect("a", "a")
    assert scheduler.dispatch(10.0) == []
    for place in range(1, 4_000):
        scheduler.cancel(f"t/{place}")
    assert living_rollouts() - before < 100


def living_rollouts() -> int:
    """Those that somebody still refers to."""
    gc.collect()
    return sum(type(thing) is Rollout for thing in gc.get_objects())
