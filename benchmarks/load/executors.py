"""The real executor as a process, with empty nodes as processes beside it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from load.processes import BENCHMARKS, children

# The same processes as in the tests.
sys.path.append(str(BENCHMARKS.parent / "tests"))
from support.services import Service, Services, services_in

NODES = 2
SLOTS = 256


@contextmanager
def running_executor(durability: str, *flags: str) -> Iterator[Service]:
    """An executor on a new SQLite file, with `durability`."""
    with tempfile.TemporaryDirectory() as folder, services_in(Path(folder)) as services:
        yield start_executor(services, durability, *flags)


def start_executor(services: Services, durability: str, *flags: str) -> Service:
    """Starts one, on a file that is kept as long as the services' folder."""
    database = str(services.folder / "executor.db")
    options = ("--database", database, "--durability", durability, "--exit-with-parent", str(os.getpid()))
    return services.start("executor", *options, *flags)


def node_commands(address: str, *, nodes: int = NODES, slots: int = SLOTS) -> list[Sequence[str]]:
    """How empty nodes are started."""
    options = ("-m", "load.empty_node", "--executor", address, "--slots", str(slots))
    return [(*options, "--node-id", f"n{index}") for index in range(nodes)]


@contextmanager
def executor_and_nodes(durability: str) -> Iterator[Service]:
    """An executor, and two nodes that never have too few slots."""
    with running_executor(durability) as executor, children(node_commands(executor.address)):
        yield executor
