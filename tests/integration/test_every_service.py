"""What each service owes its operators: reflection, health, metrics, tolerance of newer neighbours, an orderly end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.metrics import scrape
from support.services import Service, Services, unused_address

BUF = Path(sys.executable).with_name("buf")
UNKNOWN_FIELD = b"\xfa\x3f\x03new"  # field 1023, three bytes

# Name, its gRPC service, a call that needs no neighbour.
SERVICES = [
    ("executor", "practicum.v1.ExecutorService", "ListNodes"),
    ("node", "", ""),
    ("env_gateway", "practicum.v1.EnvGatewayService", "ListEnvironments"),
    ("inference_proxy", "practicum.v1.InferenceService", "GetPolicyVersion"),
    ("trainer", "practicum.v1.TrainerService", "ListRuns"),
]
Flags = Callable[[str], list[str]]


@pytest.fixture
def flags(tmp_path: Path, tiny_model: Path) -> Flags:
    """What each service has to be told."""
    told = {
        "executor": ["--database", str(tmp_path / "executor.db")],
        "node": ["--node-id", "alone"],
        "env_gateway": ["--catalogue", "environments/catalogue.json"],
        "inference_proxy": ["--model", str(tiny_model), "--weights-root", str(tmp_path)],
        "trainer": ["--state", str(tmp_path / "trainer")],
    }
    return lambda name: told[name]


@pytest.fixture(params=SERVICES, ids=[name for name, _, _ in SERVICES])
def started(request: pytest.FixtureRequest, services: Services, flags: Flags) -> tuple[Service, str, str]:
    """Each service without its neighbours."""
    name, full_name, call = request.param
    return services.start(name, "--metrics-address", unused_address(), *flags(name)), full_name, call


def test_a_service_answers_tools_and_neighbours_and_ends_in_order(started: tuple[Service, str, str]) -> None:
    """buf curl lists it; a newer neighbour's fields are skipped; health says NOT_SERVING before it closes."""
    service, full_name, call = started
    assert full_name in listed(service.address)
    assert scrape(service.flags[1])("process_resident_memory_bytes") > 0
    with grpc.insecure_channel(service.address) as channel:
        if call:
            raw = channel.unary_unary(f"/{full_name}/{call}", request_serializer=bytes, response_deserializer=bytes)
            raw(UNKNOWN_FIELD, timeout=20)
        states = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=full_name))
        assert next(states).status == health_pb2.HealthCheckResponse.SERVING
        assert service.process is not None
        service.process.terminate()
        assert next(states).status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert service.process.wait(20) == 0, service.text


def listed(address: str) -> set[str]:
    """What `buf curl` lists by reflection; empty names are asked of a service that serves nothing of its own."""
    command = [str(BUF), "curl", "--protocol", "grpc", "--http2-prior-knowledge", "--list-services"]
    result = subprocess.run([*command, f"http://{address}"], capture_output=True, text=True, timeout=30, check=True)
    return {"", *result.stdout.split()}


@pytest.mark.parametrize("name", [name for name, _, _ in SERVICES])
def test_a_port_in_use_is_named(name: str, services: Services, flags: Flags) -> None:
    """Exit status 2, one sentence, no traceback."""
    first = services.start("executor", "--database", str(services.folder / "other.db"))
    second = Service(name, first.address, flags(name), services.folder / "second.log")
    services.started.append(second)
    second.launch()
    assert second.process is not None and second.process.wait(30) == 2
    assert first.address in second.text and "Traceback" not in second.text
