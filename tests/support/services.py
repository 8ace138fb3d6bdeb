"""Starts the real services as processes, and makes sure that none is left."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

START_SECONDS = 60
TESTS = Path(__file__).parents[1]


def unused_address() -> str:
    """A loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def unused_ports(count: int = 8) -> int:
    """The first of so many ports in a row that nobody listens on, below those that the kernel gives to clients."""
    for _ in range(100):
        base = random.randrange(20_000, 32_000)
        if all(unused(base + offset) for offset in range(count)):
            return base
    raise AssertionError("no free range of ports")


def unused(port: int) -> bool:
    """Whether nobody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@dataclass
class Service:
    """One service's process; it may be stopped, killed, and started again with the same flags."""

    name: str
    address: str
    flags: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    python: Path = Path(sys.executable)

    def launch(self) -> None:
        """Starts the process."""
        command = [str(self.python), "-m", f"practicum.{self.name}", "--address", self.address, *self.flags]
        with self.log.open("ab") as log:
            environment = os.environ | {"PYTHONPATH": str(TESTS)}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def wait_serving(self) -> None:
        """Until health says SERVING; fails at once when the process ends."""
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while not serving(self.address):
            assert self.process.poll() is None, f"{self.name} ended:\n{self.text}"
            assert time.monotonic() < deadline, f"{self.name} does not serve:\n{self.text}"

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self, timeout: float = 30) -> int:
        """SIGTERM; returns the exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout)

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self.process is not None
        return self.process.pid

    @property
    def text(self) -> str:
        """What it logged."""
        return self.log.read_text(errors="replace")


def serving(address: str) -> bool:
    """Whether health says SERVING within a second."""
    # A pool of its own: a connection that another channel of this process had to a killed service is not reused.
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        try:
            answer = check(health_pb2.HealthCheckRequest(), timeout=1, wait_for_ready=True)
        except grpc.RpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


@dataclass
class Services:
    """The services of one test."""

    folder: Path
    started: list[Service] = field(default_factory=list)

    def start(self, name: str, *flags: str, wait: bool = True) -> Service:
        """Starts a service on a free port."""
        log = self.folder / f"{len(self.started)}-{name}.log"
        service = Service(name, unused_address(), flags, log)
        self.started.append(service)
        service.launch()
        if wait:
            service.wait_serving()
        return service

    def executor(self, *flags: str) -> Service:
        """An executor with short leases, on a database of this test."""
        number = sum(service.name == "executor" for service in self.started)
        database = self.folder / f"executor-{number}.db"
        return self.start("executor", "--database", str(database), "--lease-seconds", "3", *flags)

    def node(self, node_id: str, executor: Service, gateway: Service | None, *flags: str) -> Service:
        """A node that isn't held up at its end by rollouts which wait for somebody."""
        doors = ["--executor", executor.address, *(["--gateway", gateway.address] if gateway else [])]
        return self.start("node", "--node-id", node_id, "--drain-seconds", "0.2", *doors, *flags)


@contextmanager
def services_in(folder: Path) -> Iterator[Services]:
    """Services that end with the context, the last first."""
    services = Services(folder)
    try:
        yield services
    finally:
        for service in reversed(services.started):
            end(service)


def end(service: Service) -> None:
    """Stops a service whatever it does."""
    process = service.process
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        raise AssertionError(f"{service.name} did not stop on SIGTERM:\n{service.text}") from None
