"""What the executor's benchmarks compute, without a process."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from figures import Figure
from load.bounds import bound, in_order
from load.closed_loop import ClosedLoop, StandingBacklog
from load.results import record
from traces.make_traces import SEEDS, make_trace, trace_file


def no_cpu() -> float:
    """A process that uses none."""
    return 0.0


async def turns() -> None:
    """Lets what was begun go on: two turns of the event loop."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_closed_loop_keeps_its_depth_and_submits_together_what_is_due() -> None:
    """Six rollouts, four at a time: what ends in one turn of the event loop is replaced by one submit."""
    submits: list[list[str]] = []
    loop = ClosedLoop(submits.append, rollouts=6, in_flight=4, prefix="r")
    running = asyncio.create_task(loop.run(no_cpu))
    await turns()
    assert submits == [["r0", "r1", "r2", "r3"]]
    loop.done(["r0"])
    loop.done(["r2"])
    await turns()
    assert submits[1:] == [["r4", "r5"]]
    loop.done(["r1", "r3", "r4", "r5"])
    run = await running
    assert (run.rollouts, len(run.latencies), len(submits)) == (6, 6, 2)


async def test_a_closed_loop_counts_a_repeat_and_a_stranger_for_nothing() -> None:
    """Each rollout ends once."""
    loop = ClosedLoop(lambda ids: None, rollouts=2, in_flight=2, prefix="r")
    running = asyncio.create_task(loop.run(no_cpu))
    await turns()
    loop.done(["r0", "r0", "other-1"])
    await turns()
    assert not running.done()
    loop.done(["r1"])
    assert (await running).rollouts == 2


async def test_a_failed_submit_ends_the_loop() -> None:
    """Nothing is measured of it."""
    loop = ClosedLoop(lambda ids: None, rollouts=1, in_flight=1, prefix="r")
    running = asyncio.create_task(loop.run(no_cpu))
    await turns()
    loop.failed(ConnectionError("gone"))
    with pytest.raises(ConnectionError, match="gone"):
        await running


async def test_a_standing_backlog_replaces_what_ends() -> None:
    """As many are submitted as ended, with names of their own."""
    submitted: list[str] = []
    backlog = StandingBacklog(submitted.extend, "s")
    running = asyncio.create_task(backlog.run(3, no_cpu))
    await turns()
    backlog.done(["a", "b"])
    backlog.done(["c"])
    assert (await running).rollouts == 3
    await turns()
    assert submitted == ["s0", "s1", "s2"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_committed_trace_is_what_its_seed_makes(seed: int) -> None:
    """The recipe in the file is true."""
    assert json.loads(trace_file(seed).read_text()) == make_trace(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_trace_has_its_mean_and_a_heavy_tail(seed: int) -> None:
    """The slowest takes twice the median at least, and none longer than the deadline."""
    trace = make_trace(seed)
    seconds = sorted(trace["seconds"])
    assert sum(seconds) / len(seconds) == pytest.approx(240, abs=0.01)
    assert seconds[-1] == trace["deadline_seconds"] > 2 * seconds[len(seconds) // 2]


def test_the_bound_is_the_slowest_or_the_slots() -> None:
    """Whichever is later."""
    assert bound([1, 2, 6], slots=3) == 6
    assert bound([1, 2, 3, 4], slots=2) == 5


def test_an_order_may_miss_the_bound() -> None:
    """A long one that begins last."""
    assert in_order([1, 1, 2], slots=2) == 3
    assert in_order([2, 1, 1], slots=2) == 2 == bound([2, 1, 1], slots=2)


def test_figures_are_written_with_their_bars() -> None:
    """A program reads what a person does."""
    written = record("t", [Figure("cost", 2.0, " ms", at_most=1.0), Figure("rate", 3.0)], method="how")
    assert [figure["met"] for figure in written["figures"]] == [False, True]
    assert written["figures"][0] == {
        "what": "cost",
        "value": 2.0,
        "unit": " ms",
        "at_most": 1.0,
        "at_least": None,
        "met": False,
    }
    assert written["method"] == "how"
