"""Who is served next: priorities, shares of queues, places in line."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

import pytest
from support.scheduling import make_node, make_rollouts, make_scheduler

from practicum.executor.scheduling.pending import Requirement
from practicum.executor.scheduling.scheduler import Rollout, Scheduler, State

T = TypeVar("T")


def serve(scheduler: Scheduler, number: int) -> list[Rollout]:
    """Gives out so many, one after the other, each to end before the next."""
    served = []
    while len(served) < number:
        for lease in scheduler.dispatch(0.0):
            rollout = scheduler.finish(lease.lease_id, lease.node_id)
            assert rollout is not None
            served.append(rollout)
    return served


def shuffled(items: Iterable[T]) -> list[T]:
    """The same disorder each time."""
    mixed = list(items)
    random.Random(1).shuffle(mixed)
    return mixed


def queues(served: list[Rollout]) -> Counter[str]:
    """How many of each queue."""
    return Counter(rollout.queue for rollout in served)


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


def test_queues_share_by_weight() -> None:
    """Three to one, at any time and not only in the end."""
    scheduler = make_scheduler({"heavy": 3.0})
    scheduler.register(make_node("a", slots=1), [], 0.0)
    for queue in ("light", "heavy"):
        scheduler.submit(make_rollouts(400, prefix=queue, queue=queue))
    for _ in range(20):
        served = queues(serve(scheduler, 20))
        assert served["heavy"] == pytest.approx(15, abs=1)


def test_priority_goes_before_shares() -> None:
    """A queue of the smallest weight is served first when it is more urgent."""
    scheduler = make_scheduler({"heavy": 1000.0})
    scheduler.register(make_node("a", slots=1), [], 0.0)
    scheduler.submit(make_rollouts(5, prefix="heavy", queue="heavy"))
    scheduler.submit(make_rollouts(5, prefix="urgent", queue="light", priority=-1))
    assert queues(serve(scheduler, 5)) == {"light": 5}


def test_a_queue_that_was_idle_has_saved_nothing_up() -> None:
    """It shares from now on."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=1), [], 0.0)
    scheduler.submit(make_rollouts(1, prefix="early", queue="idle"))
    scheduler.submit(make_rollouts(200, prefix="busy", queue="busy"))
    serve(scheduler, 101)
    scheduler.submit(make_rollouts(100, prefix="late", queue="idle"))
    assert queues(serve(scheduler, 20))["idle"] == pytest.approx(10, abs=1)


def test_a_queue_that_nobody_could_run_has_saved_nothing_up() -> None:
    """Nor does it take over the first node that can."""
    scheduler = make_scheduler()
    scheduler.register(make_node("plain", slots=1), [], 0.0)
    scheduler.submit(make_rollouts(400, prefix="any", queue="any"))
    needs_gpu = Requirement("tool_agent", frozenset({("gpu", "yes")}))
    scheduler.submit(make_rollouts(100, prefix="gpu", queue="gpu", requirement=needs_gpu))
    assert queues(serve(scheduler, 100)) == {"any": 100}
    scheduler.nodes["plain"].draining = True
    scheduler.register(make_node("gpu", slots=1, gpu="yes"), [], 0.0)
    assert queues(serve(scheduler, 20))["gpu"] == pytest.approx(10, abs=1)


def test_a_light_queue_that_asks_one_by_one_gets_no_more_than_its_share() -> None:
    """Being idle for a moment does not make it new."""
    scheduler = make_scheduler({"light": 0.1})
    scheduler.register(make_node("a", slots=1), [], 0.0)
    scheduler.submit(make_rollouts(400, prefix="heavy", queue="heavy"))
    served: list[Rollout] = []
    for turn in range(110):
        if "light" not in scheduler.queues or not scheduler.queues["light"].queued:
            scheduler.submit(make_rollouts(1, prefix=f"light-{turn}", queue="light"))
        served += serve(scheduler, 1)
    assert queues(served)["light"] == pytest.approx(10, abs=1)


def test_a_rollout_that_is_tried_again_keeps_its_place() -> None:
    """So its group stays together in time."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=1), [], 0.0)
    scheduler.submit(make_rollouts(2, prefix="first"))
    scheduler.submit(make_rollouts(2, prefix="second"))
    (lease,) = scheduler.dispatch(0.0)
    scheduler.fail(lease.lease_id, "a", 0.0)
    order = [rollout.rollout_id for rollout in serve(scheduler, 1)]
    scheduler.pending.due(1.0)
    order += [rollout.rollout_id for rollout in serve(scheduler, 3)]
    assert order == ["first/1", "first/0", "second/0", "second/1"]


def test_rollouts_that_come_back_together_stand_as_before() -> None:
    """Whoever failed first."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=3), [], 0.0)
    scheduler.submit(make_rollouts(3))
    for lease in reversed(scheduler.dispatch(0.0)):
        scheduler.fail(lease.lease_id, "a", 0.0)
    assert [lease.rollout_id for lease in scheduler.dispatch(10.0)] == ["t/0", "t/1", "t/2"]


def test_a_retry_that_is_cancelled_before_its_time_leaves_no_gap() -> None:
    """It stood in no line."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=1), [], 0.0)
    scheduler.submit(make_rollouts(2))
    (lease,) = scheduler.dispatch(0.0)
    scheduler.fail(lease.lease_id, "a", 0.0)
    scheduler.cancel("t/0")
    assert [lease.rollout_id for lease in scheduler.dispatch(0.0)] == ["t/1"]


def test_a_queue_is_one_line_for_a_node_that_can_run_all_of_it() -> None:
    """First in, first out, whatever the rollouts require."""
    scheduler = make_scheduler()
    wanted = [frozenset[tuple[str, str]](), frozenset({("gpu", "yes")}), frozenset({("zone", "a")})]
    for number in range(30):
        requirement = Requirement("tool_agent", wanted[number % 3])
        scheduler.submit(make_rollouts(1, prefix=str(number), requirement=requirement))
    scheduler.register(make_node("a", slots=1, gpu="yes", zone="a"), [], 0.0)
    assert [rollout.task_id for rollout in serve(scheduler, 30)] == [str(number) for number in range(30)]


def test_who_leaves_the_line_changes_nobody_elses_place() -> None:
    """However many leave, half of them tried again and in no order."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=200), [], 0.0)
    scheduler.submit(make_rollouts(400))
    for lease in shuffled(scheduler.dispatch(0.0)):
        scheduler.fail(lease.lease_id, "a", 0.0)
    scheduler.pending.due(10.0)
    stay = sorted(shuffled(range(400))[:100])
    for place in set(range(400)).difference(stay):
        scheduler.cancel(f"t/{place}")
    assert [rollout.rollout_id for rollout in serve(scheduler, 100)] == [f"t/{place}" for place in stay]


def test_lines_that_are_forgotten_change_no_order() -> None:
    """A line for each of many priorities, most of which nobody is left in when others come."""
    scheduler = make_scheduler()
    stay = sorted(shuffled(range(120))[:40])
    for priority in shuffled(range(120)):
        scheduler.submit(make_rollouts(1, prefix=str(priority), priority=priority))
    for priority in set(range(120)).difference(stay):
        scheduler.cancel(f"{priority}/0")
    for priority in range(1_000, 1_100):
        scheduler.submit(make_rollouts(1, prefix=str(priority), priority=priority))
    scheduler.register(make_node("a", slots=1), [], 0.0)
    assert [rollout.priority for rollout in serve(scheduler, 140)] == [*stay, *range(1_000, 1_100)]


def test_a_debt_is_forgiven_when_nothing_waits() -> None:
    """Shares are of what is scarce: who used idle nodes owes nothing."""
    scheduler = make_scheduler({"light": 0.01})
    scheduler.register(make_node("a", slots=1), [], 0.0)
    scheduler.submit(make_rollouts(10, prefix="early", queue="light"))
    serve(scheduler, 10)
    for queue in ("light", "heavy"):
        scheduler.submit(make_rollouts(10, prefix=queue, queue=queue))
    assert queues(serve(scheduler, 2)) == {"light": 1, "heavy": 1}


def test_queues_count_what_waits_and_runs() -> None:
    """What waits for its next attempt waits; what ended is not counted any more."""
    scheduler = make_scheduler()
    scheduler.register(make_node("a", slots=3), [], 0.0)
    scheduler.submit(make_rollouts(5, queue="q"))
    first, second, _ = scheduler.dispatch(0.0)
    assert (scheduler.queues["q"].queued, scheduler.queues["q"].running) == (2, 3)
    scheduler.finish(first.lease_id, "a")
    scheduler.fail(second.lease_id, "a", 0.0)
    scheduler.cancel("t/4")
    assert (scheduler.queues["q"].queued, scheduler.queues["q"].running) == (2, 1)


def test_the_oldest_of_a_queue_is_known() -> None:
    """By when it came, over all its lines."""
    scheduler = make_scheduler()
    assert scheduler.oldest("q") is None
    unable = Requirement("unknown_agent")
    scheduler.submit(make_rollouts(3, queue="q"))
    scheduler.submit(make_rollouts(3, prefix="urgent", queue="q", priority=-1, requirement=unable))
    scheduler.submit(make_rollouts(3, prefix="other", queue="other"))
    for rollout_id in ("t/0", "t/1", "urgent/0"):
        scheduler.cancel(rollout_id)
    assert scheduler.oldest("q") == 1.0
    scheduler.cancel("urgent/1")
    assert scheduler.oldest("q") == 2.0


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), 1e-9])
def test_a_weight_that_is_none_is_refused(weight: float) -> None:
    """When the scheduler is made, not when somebody waits for ever."""
    with pytest.raises(ValueError, match="the weight of queue q is"):
        make_scheduler({"q": weight})


def test_equal_requirements_are_one_object() -> None:
    """A hundred thousand rollouts need not have as many."""
    scheduler = make_scheduler()
    for task in range(3):
        requirement = Requirement("tool_agent", frozenset({("gpu", "yes")}))
        scheduler.submit(make_rollouts(1, prefix=f"t{task}", requirement=requirement))
    assert len({id(rollout.requirement) for rollout in scheduler.rollouts.values()}) == 1


def test_a_rollout_is_submitted_once() -> None:
    """A repeat is a mistake of the caller, and changes nothing."""
    scheduler = make_scheduler()
    scheduler.submit(make_rollouts(1))
    with pytest.raises(ValueError, match="was submitted before"):
        scheduler.submit(make_rollouts(1))
    assert len(scheduler.pending) == 1
    assert [rollout.state for rollout in scheduler.rollouts.values()] == [State.QUEUED]
