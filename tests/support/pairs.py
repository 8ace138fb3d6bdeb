"""Two executors on one PostgreSQL, of which one leads, and rollouts that keep nodes busy while it changes."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.services import Service, Services

from practicum.client import AgentSpec, Task

LEASE_SECONDS = 2.0
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
    lease = ("--leader-lease-seconds", str(LEASE_SECONDS), *flags)
    leader = services.executor("--database", url, *lease)
    wait_leading(leader, 20)
    return Pair(leader, services.executor("--database", url, *lease))


@pytest.fixture
def pair(services: Services, postgres_url: str) -> Pair:
    """On a database of their own."""
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


@contextmanager
def stopped(service: Service) -> Iterator[subprocess.Popen[bytes]]:
    """Stops a process in its tracks, and lets it go on at the end."""
    assert service.process is not None
    service.process.send_signal(signal.SIGSTOP)
    try:
        yield service.process
    finally:
        service.process.send_signal(signal.SIGCONT)


def naps(count: int, seconds: float, prefix: str = "t") -> list[Task]:
    """Tasks of one rollout each, which need no environment."""
    agent = AgentSpec(kind="napper", config_json=json.dumps({"seconds": seconds}))
    return [Task(id=f"{prefix}{index}", instruction="sleep", agent=agent) for index in range(count)]


def start_node(services: Services, name: str, addresses: str) -> Service:
    """A node that takes naps."""
    return services.start("node", "--node-id", name, "--executor", addresses, *NAPPER)
