"""A node that is cut off from the executor in the middle of a rollout, and comes back when another has it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.relay import relay_to
from support.services import Services

from practicum.client import ExecutorClient, Task, Trajectory

ACTOR = ("--agent", "actor=support.agents:actor")
AFTER_SECONDS = 5.0
WAIT_SECONDS = 120.0


@dataclass(frozen=True)
class CutOff:
    """When each session was acted upon (seconds, by its process), and what came of the rollout."""

    first: list[float]
    second: list[float]
    stored: list[Trajectory]

    @property
    def late(self) -> int:
        """How often the superseded attempt acted after the newer one had begun to."""
        return sum(at > self.second[0] for at in self.first)


def cut_off(services: Services, folder: Path, *, seconds: float) -> CutOff:
    """Cuts a node off for so many seconds, restores it, and looks on for a while."""
    log = folder / "witness.log"
    gateway = services.start("env_gateway", "--catalogue", str(catalogue(folder, log)))
    executor = services.executor()
    with relay_to(executor.address) as relay, ExecutorClient(executor.address) as client:
        services.start("node", "--node-id", "cut", "--executor", relay.address, "--gateway", gateway.address, *ACTOR)
        settings = json.dumps({"seconds": seconds + 2 * AFTER_SECONDS})
        agent = {"kind": "actor", "config_json": settings}
        task = Task(id="t", instruction="act", agent=agent, environment={"name": "witnessed"})
        task.limits.max_steps = 1_000_000
        client.submit([task])
        wait_for(lambda: len(sessions(log)) == 1)
        cut_at = time.monotonic()
        relay.cut()
        services.node("other", executor, gateway, *ACTOR)
        wait_for(lambda: len(sessions(log)) == 2)
        time.sleep(max(cut_at + seconds - time.monotonic(), 0))
        relay.mend()
        time.sleep(AFTER_SECONDS)
        stored = list(client.trajectories("reader", limit=1))
        assert len(list(client.query())) == 1
    first, second = sessions(log).values()
    return CutOff(first, second, stored)


def catalogue(folder: Path, log: Path) -> Path:
    """A catalogue with the witness alone."""
    server = {"command": sys.executable, "args": [str(Path(__file__).with_name("witness.py")), str(log)]}
    environment = {"servers": ["witness"], "tools": ["witness__act"]}
    path = folder / "catalogue.json"
    path.write_text(json.dumps({"mcpServers": {"witness": server}, "environments": {"witnessed": environment}}))
    return path


def sessions(log: Path) -> dict[str, list[float]]:
    """When each process of the environment was acted upon, in the order in which they began."""
    found: dict[str, list[float]] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        process, at = line.split()
        found.setdefault(process, []).append(float(at))
    return found


def wait_for(true: Callable[[], bool]) -> None:
    """Fails after a while."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
