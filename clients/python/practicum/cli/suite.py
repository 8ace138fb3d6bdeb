"""The services of the suite on this machine: which there are, where they listen, how they stop."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from practicum.cli.child import Child, StartFailed, wait_ready
from practicum.cli.engine import engine_child
from practicum.cli.ready import healthy, port_taken

START_SECONDS = 300.0
STOP_SECONDS = 35.0  # The trainer may need 30 to keep a checkpoint.


@dataclass(frozen=True, slots=True)
class Ports:
    """Consecutive ports on loopback."""

    base: int

    def address(self, offset: int) -> str:
        """An address."""
        return f"127.0.0.1:{self.base + offset}"

    executor = property(lambda self: self.address(0))
    gateway = property(lambda self: self.address(1))
    inference = property(lambda self: self.address(2))
    trainer = property(lambda self: self.address(3))
    engine = property(lambda self: self.base + 4)

    def node(self, index: int) -> str:
        """The address where a node answers health."""
        return self.address(5 + index)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start. With a `model`, the engine, the proxy and the trainer too."""

    folder: Path
    ports: Ports
    catalogue: Path
    nodes: int = 2
    slots: int = 16
    agents: Sequence[str] = field(default_factory=tuple)
    model: Path | None = None
    durability: str = "full"


class Suite:
    """The children of one command."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.children = [*basic_children(plan), *(model_children(plan, plan.model) if plan.model is not None else ())]

    def start(self) -> None:
        """Starts all; they find each other."""
        (self.plan.folder / "logs").mkdir(parents=True, exist_ok=True)
        for child in self.children:
            taken = child.address.removeprefix("http://")
            if port_taken(taken):
                raise PortTaken(child.name, taken)
        for child in self.children:
            child.start()

    def wait(self, tick: Callable[[Sequence[Child]], None], *, names: Sequence[str] = ()) -> None:
        """Until these, or all, serve."""
        wait_ready([c for c in self.children if not names or c.name in names], seconds=START_SECONDS, tick=tick)

    def supervise(self) -> list[str]:
        """Starts again what ended by itself. Returns the names. StartFailed when one ends again and again."""
        again = []
        for child in self.children:
            if child.exit_status is None:
                continue
            due = child.restarts.due(time.monotonic())
            if child.exit_status == 2 or due is None:
                raise StartFailed(child, f"ended with status {child.exit_status} and is not started again")
            if due:
                child.wait(0)  # Processes that it started may still be there.
                child.start()
                again.append(child.name)
        return again

    def stop(self) -> None:
        """Stops all, those first that use the others. Told to hurry by another signal, kills them. Nothing is left."""
        try:
            self._stop_in_order()
        except KeyboardInterrupt:
            for child in self.children:
                child.wait(0)

    def _stop_in_order(self) -> None:
        for rank in sorted({child.stop_rank for child in self.children}):
            group = [child for child in self.children if child.stop_rank == rank]
            for child in group:
                child.terminate()
            deadline = time.monotonic() + STOP_SECONDS
            for child in group:
                child.wait(max(deadline - time.monotonic(), 0.0))


@contextmanager
def suite(plan: Plan) -> Iterator[Suite]:
    """A suite that ends with the context."""
    running = Suite(plan)
    try:
        running.start()
        yield running
    finally:
        running.stop()


class PortTaken(Exception):
    """Somebody else listens where a service should."""

    def __init__(self, name: str, address: str) -> None:
        super().__init__(
            f"{address} is taken, and {name} should listen there. Stop what uses it, or give another --base-port"
        )


def basic_children(plan: Plan) -> list[Child]:
    """Executor, gateway, nodes."""
    ports, folder = plan.ports, plan.folder
    database = ["--database", str(folder / "executor.db"), "--durability", plan.durability]
    agents = [part for agent in plan.agents for part in ("--agent", agent)]
    doors = ["--executor", ports.executor, "--gateway", ports.gateway, "--inference", ports.inference]
    return [
        service("executor", ports.executor, folder, *database, stop_rank=1),
        service("env_gateway", ports.gateway, folder, "--catalogue", str(plan.catalogue), stop_rank=1),
        *(
            service(
                "node",
                ports.node(index),
                folder,
                *("--node-id", f"node-{index + 1}", "--slots", str(plan.slots), "--drain-seconds", "2"),
                *doors,
                *agents,
                name=f"node-{index + 1}",
            )
            for index in range(plan.nodes)
        ),
    ]


def model_children(plan: Plan, model: Path) -> list[Child]:
    """Engine, proxy, trainer."""
    ports, folder = plan.ports, plan.folder
    engine = engine_child(model, port=ports.engine, log=folder / "logs" / "engine.log")
    proxy = ["--engine", engine.address, "--model", str(model), "--weights-root", str(folder)]
    trainer = ["--executor", ports.executor, "--inference", ports.inference, "--state", str(folder / "trainer")]
    return [
        engine,
        service("inference_proxy", ports.inference, folder, *proxy, stop_rank=1),
        service("trainer", ports.trainer, folder, *trainer),
    ]


def service(module: str, address: str, folder: Path, *flags: str, name: str | None = None, stop_rank: int = 0) -> Child:
    """A service of ours as a child."""
    name = name or module
    command = [sys.executable, "-m", f"practicum.{module}", "--address", address]
    command += ["--exit-with-parent", str(os.getpid()), *flags]
    log = folder / "logs" / f"{name}.log"
    return Child(name, command, log, lambda: healthy(address), address=address, stop_rank=stop_rank)
