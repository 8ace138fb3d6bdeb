"""The metrics that every service has, as Prometheus reads them."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from pathlib import Path

import grpc
import pytest
from support.metrics import scrape, scrape_until
from support.services import Service, Services, unused_address

from practicum.v1 import executor_pb2, executor_pb2_grpc

HANDLED = "grpc_server_handled_total"


@pytest.fixture
def metrics_address() -> str:
    return unused_address()


@pytest.fixture
def executor(services: Services, metrics_address: str) -> Service:
    return services.executor("--metrics-address", metrics_address)


def test_calls_are_counted_by_method_and_code(executor: Service, metrics_address: str) -> None:
    """Errors by the status that their callers saw; streams when they end."""
    with grpc.insecure_channel(executor.address) as channel:
        stub = executor_pb2_grpc.ExecutorServiceStub(channel)
        stub.ListNodes(executor_pb2.ListNodesRequest())
        with pytest.raises(grpc.RpcError):
            stub.GetTask(executor_pb2.GetTaskRequest(task_id="nobody"))
        opened = executor_pb2.StreamTrajectoriesRequest(open=executor_pb2.OpenConsumer(consumer="me"))
        list(stub.StreamTrajectories(iter([opened])))
    found = scrape_until(metrics_address, lambda s: s(HANDLED, grpc_method="StreamTrajectories") == 1)
    assert found(HANDLED, grpc_method="ListNodes", grpc_code="OK", grpc_type="unary") == 1
    assert found(HANDLED, grpc_method="GetTask", grpc_code="NOT_FOUND") == 1
    assert found(HANDLED, grpc_method="StreamTrajectories", grpc_code="OK", grpc_type="bidi_stream") == 1
    assert found("grpc_server_handling_seconds_count", grpc_method="ListNodes") == 1
    assert 0 < found("grpc_server_handling_seconds_sum", grpc_method="ListNodes") < 5


def test_a_process_tells_of_itself(executor: Service, metrics_address: str) -> None:
    """CPU, memory, open files, and what was collected as garbage."""
    found = scrape(metrics_address)
    assert found("process_resident_memory_bytes") > 10_000_000
    assert found("process_cpu_seconds_total") > 0 and found("process_open_fds") > 3
    assert found("python_gc_collections_total", generation="0") > 0


def test_what_is_no_get_of_metrics_is_refused(executor: Service, metrics_address: str) -> None:
    """Who asks for something else, or nothing, harms nobody."""
    for path, method, status in (("/", "GET", 404), ("/metrics", "POST", 405)):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(f"http://{metrics_address}{path}", method=method), timeout=10)
        assert caught.value.code == status
        caught.value.close()
    host, port = metrics_address.split(":")
    with socket.create_connection((host, int(port))) as silent, socket.create_connection((host, int(port))) as noisy:
        noisy.sendall(b"x" * 100_000)
        assert noisy.recv(1024) == b""
        assert scrape(metrics_address)("process_open_fds") > 3
        assert executor.stop() == 0, executor.text  # The silent one does not hold it up.
        silent.close()
    assert "Traceback" not in executor.text


def test_metrics_end_with_their_service(executor: Service, metrics_address: str) -> None:
    """And the port is free for the next."""
    assert executor.stop() == 0
    with pytest.raises(urllib.error.URLError):
        scrape(metrics_address)
    executor.launch()
    executor.wait_serving()
    scrape(metrics_address)


@pytest.mark.parametrize(
    ("address", "told"),
    [("taken", "can't serve metrics on"), ("0.0.0.0:0", "--insecure"), ("nonsense", "is not an address")],
)
def test_a_wrong_address_is_named(address: str, told: str, executor: Service, services: Services) -> None:
    """Exit status 2, one sentence, no traceback."""
    flags = ["--database", str(services.folder / "b.db"), "--metrics-address"]
    flags.append(executor.address if address == "taken" else address)
    other = Service("executor", unused_address(), flags, services.folder / "other.log")
    services.started.append(other)
    other.launch()
    assert other.process is not None and other.process.wait(30) == 2
    assert told in other.text and "Traceback" not in other.text


def test_the_log_level_hides_what_is_below(services: Services, tmp_path: Path) -> None:
    """`warning` tells nothing of an ordinary life."""
    quiet = services.executor("--log-level", "warning")
    assert quiet.stop() == 0
    assert quiet.text == ""
