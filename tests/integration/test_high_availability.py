"""The leader of two executors on one PostgreSQL is killed or stopped, or the database is, while nodes are at work."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from sqlalchemy import create_engine, text
from support.boxes import boxes_tasks, door, submit
from support.pairs import LEASE_SECONDS, Pair, leads, naps, start_node, start_pair, stopped, wait_leading
from support.pairs import pair as pair
from support.postgres import running_postgres
from support.scripted_node import ScriptedNode
from support.services import Services

from practicum.client import ExecutorClient
from practicum.executor.store.tables import METADATA
from practicum.v1 import executor_pb2, trajectory_pb2

pytestmark = pytest.mark.processes


def test_kill_9_of_the_leader_under_load(services: Services, pair: Pair) -> None:
    """The standby leads within the lease; nothing is lost or doubled, and nodes keep what they run."""
    count = 300
    for name in ("a", "b"):
        start_node(services, name, pair.addresses)
    with ExecutorClient(pair.addresses) as client, ThreadPoolExecutor(1) as threads:
        client.submit(naps(count, 0.2))
        reader = client.trajectories("reader", limit=count + 50)
        found = [next(reader) for _ in range(40)]
        pair.leader.kill()
        # While nobody leads.
        submitted = threads.submit(lambda: ExecutorClient(pair.addresses).submit(naps(50, 0.2, "late")))
        assert wait_leading(pair.standby, 20) < LEASE_SECONDS
        pair.leader.launch()
        found += reader
        assert len(submitted.result(20)) == 50
        ids = [f"t{index}/0" for index in range(count)] + [f"late{index}/0" for index in range(50)]
        assert Counter(t.rollout_id for t in found) == Counter(ids)
        assert {t.outcome for t in found} == {trajectory_pb2.OUTCOME_FINISHED}
        assert Counter(t.rollout_id for t in client.query()) == Counter(ids)
        # 32 were at work. Only those that no node had heard of yet may have begun again.
        assert sum(t.attempt > 1 for t in found) < 16
    pair.leader.wait_serving()
    assert not leads(pair.leader)


def tables(url: str) -> dict[str, list[tuple[object, ...]]]:
    """All that the store holds."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = {
            name: [tuple(row) for row in connection.execute(table.select().order_by(*table.primary_key))]
            for name, table in METADATA.tables.items()
        }
    engine.dispose()
    return found


def end_lease(url: str) -> None:
    """As when the database's clock was put forward."""
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE leadership SET expires_at = to_timestamp(0)"))
    engine.dispose()


@pytest.mark.parametrize("lease_seconds", [2, 60])
def test_a_leader_that_was_stopped_for_a_while_writes_nothing(
    services: Services, postgres_url: str, lease_seconds: int
) -> None:
    """What it was told meanwhile is refused, whoever said it; then it ends.

    After a short lease it knows by its clock that it may not lead any more; else only the database can tell.
    """
    flags = ("--lease-seconds", "600", "--leader-lease-seconds", str(lease_seconds))
    pair = start_pair(services, postgres_url, *flags)
    node = ScriptedNode(pair.leader.address)
    with door(pair.leader.address) as old, door(pair.standby.address) as new, ThreadPoolExecutor(2) as threads:
        submit(old, boxes_tasks(4, "tool_agent"))
        given = node.assignments(4)
        node.finish(given[0])
        assert node.next_frame().acked_leases == [given[0].lease_id]
        with stopped(pair.leader) as process:
            # All these wait in its sockets.
            node.finish(given[1])
            told = threads.submit(lambda: submit(old, boxes_tasks(1, "tool_agent", prefix="old")))
            cancelled = threads.submit(lambda: old.CancelTasks(executor_pb2.CancelTasksRequest(task_ids=["t2"])))
            if lease_seconds > LEASE_SECONDS:
                end_lease(postgres_url)
            wait_leading(pair.standby, LEASE_SECONDS + 2)
            submit(new, boxes_tasks(1, "tool_agent", prefix="new"))
            before = tables(postgres_url)
        assert process.wait(10) == 3
        assert "leadership_lost" in pair.leader.text
        for call in (told, cancelled):
            with pytest.raises(grpc.RpcError) as refused:
                call.result(10)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.RpcError):
            while not (frame := node.next_frame()).acked_leases:
                assert not frame.lost_leases
        assert tables(postgres_url) == before
        assert [row[1] for row in before["tasks"]] == ["t0", "t1", "t2", "t3", "new0"]
        # The node goes on with the new leader, and brings there what it could not bring before.
        again = ScriptedNode(pair.standby.address, held=tuple(a.lease_id for a in given[1:]))
        again.finish(given[1])
        assert next(f for f in iter(again.next_frame, None) if f.acked_leases).acked_leases == [given[1].lease_id]
    pair.leader.launch()
    pair.leader.wait_serving()
    assert not leads(pair.leader) and leads(pair.standby)


def test_a_stopped_leader_under_load(services: Services, pair: Pair) -> None:
    """Nodes and readers leave it once it goes on; each rollout has one trajectory."""
    count = 150
    for name in ("a", "b"):
        start_node(services, name, pair.addresses)
    with ExecutorClient(pair.addresses) as client:
        client.submit(naps(count, 0.2))
        reader = client.trajectories("reader", limit=count)
        found = [next(reader) for _ in range(20)]
        with stopped(pair.leader) as process:
            wait_leading(pair.standby, LEASE_SECONDS + 2)
        found += reader
        assert Counter(t.rollout_id for t in found) == Counter(f"t{index}/0" for index in range(count))
        assert Counter(t.rollout_id for t in client.query()) == Counter(t.rollout_id for t in found)
    assert process.wait(10) == 3


def test_kill_9_of_the_database_under_load(services: Services) -> None:
    """Whoever led leads on if it is back within the lease, and another if it is not; nothing is lost or doubled."""
    count = 200
    with running_postgres() as postgres:
        pair = start_pair(services, postgres.new_database(), "--leader-lease-seconds", "8")
        for name in ("a", "b"):
            start_node(services, name, pair.addresses)
        with ExecutorClient(pair.addresses) as client:
            client.submit(naps(count, 0.1))
            reader = client.trajectories("reader", limit=count)
            found = [next(reader) for _ in range(20)]
            for _ in range(3):
                postgres.kill()
                postgres.start()
                found += [next(reader) for _ in range(20)]
            found += reader
            assert Counter(t.rollout_id for t in found) == Counter(f"t{index}/0" for index in range(count))
            assert Counter(t.rollout_id for t in client.query()) == Counter(t.rollout_id for t in found)
        assert leads(pair.leader)
        for service in reversed(services.started):
            service.stop()
