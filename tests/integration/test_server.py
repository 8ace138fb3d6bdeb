"""The server's bootstrap, as a real process on loopback."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from practicum.v1 import executor_pb2, executor_pb2_grpc

SERVICE = "practicum.v1.ExecutorService"
SCRIPT = Path(__file__).parent / "serving_process.py"
BUF = Path(sys.executable).parent / "buf"


def start(address: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), address], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )


@pytest.fixture
def process(address: str) -> Iterator[subprocess.Popen[str]]:
    with start(address) as process:
        yield process
        process.kill()


@pytest.fixture
def channel(process: subprocess.Popen[str], address: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(timeout=30)
        yield channel


def details(error: grpc.RpcError) -> dict[str, object]:
    """The status details by their type."""
    status = rpc_status.from_call(error)
    found: dict[str, object] = {}
    for packed in status.details:
        for kind in (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo):
            if packed.Is(kind.DESCRIPTOR):
                found[kind.__name__] = message = kind()
                packed.Unpack(message)
    return found


def test_an_error_reaches_the_caller_with_its_details(channel: grpc.Channel) -> None:
    """INVALID_ARGUMENT names the field."""
    with pytest.raises(grpc.RpcError) as caught:
        executor_pb2_grpc.ExecutorServiceStub(channel).GetTask(executor_pb2.GetTaskRequest())
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    found = details(caught.value)
    assert found["ErrorInfo"].domain == "practicum"
    assert found["BadRequest"].field_violations[0].field == "task_id"


def test_an_error_in_a_stream_says_when_to_retry(channel: grpc.Channel) -> None:
    """RESOURCE_EXHAUSTED carries RetryInfo, after what was already sent."""
    stream = executor_pb2_grpc.ExecutorServiceStub(channel).QueryTrajectories(executor_pb2.QueryTrajectoriesRequest())
    next(stream)
    with pytest.raises(grpc.RpcError) as caught:
        next(stream)
    assert details(caught.value)["RetryInfo"].retry_delay.ToMilliseconds() == 1500


def test_a_call_that_is_not_filled_in_is_unimplemented(channel: grpc.Channel) -> None:
    """As the protocol says of calls of a later release."""
    with pytest.raises(grpc.RpcError) as caught:
        executor_pb2_grpc.ExecutorServiceStub(channel).RequeueTasks(executor_pb2.RequeueTasksRequest())
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_health_says_not_serving_after_sigterm_before_the_server_closes(
    channel: grpc.Channel, process: subprocess.Popen[str]
) -> None:
    """A running call holds the server open for its grace; meanwhile health tells load balancers to go elsewhere."""
    running = executor_pb2_grpc.ExecutorServiceStub(channel).ListTasks.future(executor_pb2.ListTasksRequest())
    states = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
    assert next(states).status == health_pb2.HealthCheckResponse.SERVING
    process.send_signal(signal.SIGTERM)
    assert next(states).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert process.poll() is None
    with suppress(grpc.RpcError):
        running.result(timeout=10)
    assert process.wait(timeout=10) == 0


def test_a_second_sigterm_ends_it_at_once(channel: grpc.Channel, process: subprocess.Popen[str]) -> None:
    """For the impatient: the second signal has its default effect."""
    running = executor_pb2_grpc.ExecutorServiceStub(channel).ListTasks.future(executor_pb2.ListTasksRequest())
    states = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=SERVICE))
    next(states)
    process.send_signal(signal.SIGTERM)
    next(states)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=1.5) == -signal.SIGTERM
    with suppress(grpc.RpcError):
        running.result(timeout=10)


def test_reflection_answers_buf_curl(channel: grpc.Channel, address: str) -> None:
    """Tools list the services with no files in hand."""
    command = [
        str(BUF),
        "curl",
        "--protocol",
        "grpc",
        "--http2-prior-knowledge",
        "--list-services",
        f"http://{address}",
    ]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.split()
    assert {SERVICE, "grpc.health.v1.Health", "grpc.channelz.v1.Channelz"} <= set(listed)


def test_a_port_in_use_is_named(channel: grpc.Channel, address: str) -> None:
    """The second server on a port says which port is taken."""
    with start(address) as second:
        _, text = second.communicate(timeout=30)
    assert second.returncode == 1
    assert f"can't listen on {address}" in text


def test_an_open_address_is_refused_without_insecure() -> None:
    """Without credentials only loopback is served, unless the caller insists."""
    with start("0.0.0.0:0") as process:
        _, text = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "--insecure" in text
