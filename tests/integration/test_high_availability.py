"""Two executors on one PostgreSQL: one leads, the other stands by, and callers and nodes find the one that leads."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status
from sqlalchemy import create_engine, text
from support.boxes import boxes_tasks, door, opening, submit
from support.postgres import running_postgres
from support.scripted_node import ScriptedNode
from support.services import Service, Services, unused_address

from practicum.client import AgentSpec, CallFailed, ExecutorClient, Task
from practicum.executor.store.tables import METADATA
from practicum.v1 import dispatch_pb2, dispatch_pb2_grpc, executor_pb2, executor_pb2_grpc, trajectory_pb2

pytestmark = pytest.mark.processes
SECONDS = 2.0
NAPPER = ("--agent", "napper=support.agents:napper", "--slots", "16")


@dataclass
class Pair:
    """Two executors; the first leads unless it was killed."""

    leader: Service
    standby: Service

    @property
    def addresses(self) -> str:
        """For clients and nodes; the standby first, so that it is asked too."""
        return f"{self.standby.address},{self.leader.address}"


def start_pair(services: Services, url: str, *flags: str) -> Pair:
    """Starts both; the first leads before the second is started."""
    lease = ("--leader-lease-seconds", str(SECONDS), *flags)
    leader = services.executor("--database", url, *lease)
    wait_leading(leader, 20)
    return Pair(leader, services.executor("--database", url, *lease))


@pytest.fixture
def pair(services: Services, postgres_url: str) -> Pair:
    return start_pair(services, postgres_url)


def health_of(address: str, service: str) -> int:
    """What health says now, over a connection of its own."""
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        try:
            return check(health_pb2.HealthCheckRequest(service=service), timeout=1).status
        except grpc.RpcError:
            return health_pb2.HealthCheckResponse.UNKNOWN


def leads(executor: Service) -> bool:
    """Whether health says that its services can be used."""
    ready = health_pb2.HealthCheckResponse.SERVING
    return health_of(executor.address, "practicum.v1.ExecutorService") == ready


def wait_leading(executor: Service, seconds: float) -> float:
    """Waits until it leads; returns how long that took."""
    began = time.monotonic()
    while not leads(executor):
        assert time.monotonic() < began + seconds, executor.text
        time.sleep(0.01)
    return time.monotonic() - began


def naps(count: int, seconds: float, prefix: str = "t") -> list[Task]:
    """Tasks of one rollout each, which need no environment."""
    agent = AgentSpec(kind="napper", config_json=json.dumps({"seconds": seconds}))
    return [Task(id=f"{prefix}{index}", instruction="sleep", agent=agent) for index in range(count)]


def start_node(services: Services, name: str, addresses: str) -> Service:
    return services.start("node", "--node-id", name, "--executor", addresses, *NAPPER)


def calls(channel: grpc.Channel) -> dict[str, Callable[[], object]]:
    """A call of each kind."""
    executor = executor_pb2_grpc.ExecutorServiceStub(channel)
    dispatch = dispatch_pb2_grpc.DispatchServiceStub(channel)
    register = dispatch_pb2.ConnectRequest(register=dispatch_pb2.Register(node_id="n"))
    part = dispatch_pb2.UploadTrajectoryRequest(lease_id="l", data=b"x" * 1_000_000)
    return {
        "unary": lambda: executor.SubmitTasks(executor_pb2.SubmitTasksRequest()),
        "server stream": lambda: next(executor.QueryTrajectories(executor_pb2.QueryTrajectoriesRequest())),
        "stream": lambda: next(executor.StreamTrajectories(opening(executor_pb2.OpenConsumer(consumer="c")))),
        "node": lambda: next(dispatch.Connect(iter([register]))),
        "upload": lambda: dispatch.UploadTrajectory(iter([part] * 5)),
    }


def test_a_standby_says_where_the_leader_is(pair: Pair) -> None:
    """To calls of every kind, and when to try again; health tells apart that it is well and that it is no use."""
    with ExecutorClient(pair.standby.address) as client:
        client.nodes()  # It has looked who leads.
    with grpc.insecure_channel(pair.standby.address) as channel:
        for call in calls(channel).values():
            with pytest.raises(grpc.RpcError) as refused:
                call()
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
            for detail in rpc_status.from_call(refused.value).details:
                assert detail.Unpack(info) or detail.Unpack(retry)
            assert (info.reason, dict(info.metadata)) == ("NOT_LEADER", {"leader": pair.leader.address})
            assert retry.retry_delay.ToMilliseconds() > 0
    assert health_of(pair.standby.address, "") == health_pb2.HealthCheckResponse.SERVING
    for service in ("practicum.v1.ExecutorService", "practicum.v1.DispatchService"):
        assert health_of(pair.standby.address, service) == health_pb2.HealthCheckResponse.NOT_SERVING
        assert health_of(pair.leader.address, service) == health_pb2.HealthCheckResponse.SERVING


def test_a_client_that_asks_a_standby_is_led_on(pair: Pair) -> None:
    """Although it was told of no other."""
    with ExecutorClient(pair.standby.address) as client:
        assert client.nodes() == []
        assert len(client.submit(naps(3, 0.0))) == 3
        assert [queue.queued for queue in client.queues()] == [3]
        assert list(client.query()) == []


def test_a_client_waits_where_nobody_leads_yet(pair: Pair) -> None:
    """The standby is the only one that it was told of."""
    pair.leader.kill()
    with ExecutorClient(pair.standby.address) as client:
        assert client.nodes() == []
    assert leads(pair.standby)


def test_a_standby_stops_when_it_is_told(pair: Pair) -> None:
    """It has nothing to bring to an end."""
    assert pair.standby.stop(timeout=5) == 0
    assert leads(pair.leader)


def test_a_leader_that_stops_hands_over_at_once(pair: Pair) -> None:
    """Nobody waits for its lease."""
    assert pair.leader.stop() == 0
    assert wait_leading(pair.standby, SECONDS) < SECONDS / 2


def test_a_leader_that_is_started_again_leads_at_once(services: Services, postgres_url: str) -> None:
    """Without a standby nobody else would."""
    executor = services.executor("--database", postgres_url, "--leader-lease-seconds", "60")
    wait_leading(executor, 20)
    executor.kill()
    executor.launch()
    wait_leading(executor, 20)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--address", "0.0.0.0:50051", "--insecure"], "give --advertise"),
        (["--address", "127.0.0.1:0"], "give --advertise"),
        (["--leader-lease-seconds", "0.1"], "give at least 0.5"),
        (["--advertise", "nowhere"], "is not an address"),
        (["--queue", "a:b"], "give NAME:WEIGHT:LIMIT"),
    ],
)
def test_wrong_settings_are_refused_before_it_stands_by(
    services: Services, postgres_url: str, flags: list[str], said: str
) -> None:
    """With what would be right."""
    executor = services.start("executor", "--database", postgres_url, *flags, wait=False)
    assert executor.process is not None
    assert executor.process.wait(20) == 2
    assert said in executor.text and "Traceback" not in executor.text


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
        assert wait_leading(pair.standby, 20) < SECONDS
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
            if lease_seconds > SECONDS:
                end_lease(postgres_url)
            wait_leading(pair.standby, SECONDS + 2)
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
            wait_leading(pair.standby, SECONDS + 2)
        found += reader
        assert Counter(t.rollout_id for t in found) == Counter(f"t{index}/0" for index in range(count))
        assert Counter(t.rollout_id for t in client.query()) == Counter(t.rollout_id for t in found)
    assert process.wait(10) == 3


@contextmanager
def stopped(service: Service) -> Iterator[subprocess.Popen[bytes]]:
    """Stops a process in its tracks, and lets it go on at the end."""
    assert service.process is not None
    service.process.send_signal(signal.SIGSTOP)
    try:
        yield service.process
    finally:
        service.process.send_signal(signal.SIGCONT)


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


def test_several_executors_that_are_all_gone_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some patience."""
    monkeypatch.setattr("practicum.client.route.PATIENCE_SECONDS", 0.5)
    addresses = f"{unused_address()},{unused_address()}"
    with ExecutorClient(addresses) as client, pytest.raises(CallFailed, match=f"nothing answers at {addresses}"):
        client.nodes()
