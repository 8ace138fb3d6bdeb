"""Two executors on one PostgreSQL: one leads, the other stands by, and callers find the one that leads."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2
from grpc_status import rpc_status
from support.boxes import opening
from support.pairs import LEASE_SECONDS, Pair, health_of, leads, naps, wait_leading
from support.pairs import pair as pair
from support.services import Services, unused_address

from practicum.client import CallFailed, ExecutorClient
from practicum.v1 import dispatch_pb2, dispatch_pb2_grpc, executor_pb2, executor_pb2_grpc

pytestmark = pytest.mark.processes


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
    assert wait_leading(pair.standby, LEASE_SECONDS) < LEASE_SECONDS / 2


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
        (["--leader-lease-seconds", "0.1"], "give 0.5 to"),
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


def test_several_executors_that_are_all_gone_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some patience."""
    monkeypatch.setattr("practicum.client.route.PATIENCE_SECONDS", 0.5)
    addresses = f"{unused_address()},{unused_address()}"
    with ExecutorClient(addresses) as client, pytest.raises(CallFailed, match=f"nothing answers at {addresses}"):
        client.nodes()
