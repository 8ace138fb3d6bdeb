"""The trainer's side of executors on one PostgreSQL: a run goes on with the one that leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from support.pairs import LEASE_SECONDS, Pair, naps, start_node, wait_leading
from support.pairs import pair as pair
from support.services import Services

from practicum.client import ExecutorClient
from practicum.trainer.rollouts import Group, Rollouts
from practicum.v1 import task_pb2, trainer_pb2, trajectory_pb2

pytestmark = pytest.mark.processes
SIZE = 4


@asynccontextmanager
async def listening(addresses: str) -> AsyncIterator[Rollouts]:
    """The run's side; it listens."""
    rollouts = Rollouts(addresses, run_id="r", label="run")
    try:
        await rollouts.start()
        yield rollouts
    finally:
        await rollouts.close()


def groups(count: int, prefix: str) -> list[task_pb2.Task]:
    """Tasks of the run with a group each."""
    made = naps(count, 0.2, prefix)
    for task in made:
        task.rollouts = SIZE
        task.labels["run"] = "r"
    return made


def check_whole(found: list[Group], prefix: str) -> None:
    """Each group is its task's, with every rollout once, and none that failed."""
    wanted = [[f"{prefix}{index}/{number}" for number in range(SIZE)] for index in range(len(found))]
    assert [[trajectory.rollout_id for trajectory in group] for group in found] == wanted
    assert {trajectory.outcome for group in found for trajectory in group} == {trajectory_pb2.OUTCOME_FINISHED}


async def test_kill_9_of_the_leader_costs_a_run_no_group(services: Services, pair: Pair) -> None:
    """Those under way, those submitted while nobody leads, and what fine-tuning waits for: all come, each once."""
    start_node(services, "a", pair.addresses)
    async with listening(pair.addresses) as rollouts:
        stage = trainer_pb2.SftStage(labels={"run": "r"}, trajectories=SIZE * 50)
        stored = asyncio.create_task(rollouts.stored(stage, consumer="tuning", note=print))
        running = [asyncio.create_task(rollouts.run(task)) for task in groups(40, "t")]
        await asyncio.wait(running, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        assert not all(task.done() for task in running)
        pair.leader.kill()
        late = asyncio.create_task(rollouts.run_all(groups(10, "late")))
        assert await asyncio.to_thread(wait_leading, pair.standby, 20) < LEASE_SECONDS
        check_whole(await asyncio.wait_for(asyncio.gather(*running), 60), "t")
        check_whole(await asyncio.wait_for(late, 60), "late")
        assert len({trajectory.rollout_id for trajectory in await asyncio.wait_for(stored, 60)}) == SIZE * 50
        # Back to the one that was killed: it is the leader now.
        pair.leader.launch()
        pair.leader.wait_serving()
        pair.standby.kill()
        check_whole([await asyncio.wait_for(rollouts.run(task), 60) for task in groups(1, "last")], "last")
        await rollouts.forget()
    with ExecutorClient(pair.leader.address) as client:
        assert len({trajectory.rollout_id for trajectory in client.query()}) == SIZE * 51


async def test_a_run_that_was_told_of_a_standby_alone_is_led_on(services: Services, pair: Pair) -> None:
    """The standby names the leader; when that is gone, it is asked again."""
    start_node(services, "a", pair.addresses)
    async with listening(pair.standby.address) as rollouts:
        check_whole(await asyncio.wait_for(rollouts.run_all(groups(2, "t")), 30), "t")
        pair.leader.kill()
        check_whole(await asyncio.wait_for(rollouts.run_all(groups(2, "late")), 30), "late")
