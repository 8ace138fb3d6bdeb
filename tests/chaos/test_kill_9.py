"""kill -9 in the middle of 64 rollouts: 64 trajectories, each exactly once, none lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from support.boxes import boxes_tasks, door, stream, submit
from support.services import Service, Services

from practicum.v1 import executor_pb2, trajectory_pb2

ROLLOUTS = 64
SOLVER = ("--agent", "slow_solver=support.agents:slow_solver", "--slots", "8")


@pytest.fixture
def gateway(services: Services) -> Service:
    return services.start("env_gateway", "--catalogue", "environments/catalogue.json")


def read(events: Iterator[executor_pb2.TrajectoryEvent], count: int) -> list[trajectory_pb2.Trajectory]:
    """The next so many trajectories."""
    found: list[trajectory_pb2.Trajectory] = []
    while len(found) < count:
        event = next(events)
        if event.HasField("trajectory"):
            found.append(event.trajectory)
    return found


def check_all(found: list[trajectory_pb2.Trajectory], expected: list[str]) -> None:
    """Each exactly once, and each solved: nothing was lost, doubled, or spoilt by the kill."""
    assert Counter(t.rollout_id for t in found) == Counter(expected)
    assert {(t.outcome, t.reward) for t in found} == {(trajectory_pb2.OUTCOME_FINISHED, 1.0)}


def test_kill_9_of_a_node_loses_no_rollout(services: Services, gateway: Service) -> None:
    """The other node runs what the dead one ran."""
    executor = services.executor()
    nodes = [services.node(name, executor, gateway, *SOLVER) for name in ("a", "b")]
    with door(executor.address) as stub:
        expected = submit(stub, boxes_tasks(ROLLOUTS, "slow_solver", seconds=0.3))
        events = stream(stub, "reader")
        found = read(events, 20)
        nodes[0].kill()
        found += read(events, ROLLOUTS - 20)
        check_all(found, expected)
        assert any(t.attempt > 1 for t in found), "no rollout was on the node when it was killed"


def test_kill_9_of_the_executor_loses_no_rollout(services: Services, gateway: Service) -> None:
    """Nodes go on, and bring their results to the executor that comes back."""
    executor = services.executor()
    for name in ("a", "b"):
        services.node(name, executor, gateway, *SOLVER)
    with door(executor.address) as stub:
        expected = submit(stub, boxes_tasks(ROLLOUTS, "slow_solver", seconds=0.3))
        found = read(stream(stub, "reader"), 20)
        executor.kill()
    executor.launch()
    executor.wait_serving()
    with door(executor.address) as stub:
        again = read(stream(stub, "reader"), ROLLOUTS)
        check_all(again, expected)
        assert [t.rollout_id for t in again[:20]] == [t.rollout_id for t in found], "the consumer had acked nothing"
        rest = stub.QueryTrajectories(executor_pb2.QueryTrajectoriesRequest(), timeout=10)
        assert sum(len(response.events) for response in rest) == ROLLOUTS
        # 16 were at work. Only those that no node had heard of yet may have begun again.
        assert sum(t.attempt > 1 for t in again) < 8, "nodes did not keep their leases over the restart"
