"""Ray: two actors, each rollout a call of the one that has fewer at work.

There is no server between: the driver, which is the caller, assigns and collects, and so its CPU counts here as well as
that of Ray's own daemons; the actors' does not.
What it does not do: anything durable, leases, attempts, acks, priorities; what is in flight is lost with the driver.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import ray
from load.closed_loop import ClosedLoop
from load.processes import cpu_seconds

from rivals.arm import INSTRUCTION, NODES, RESULT, serve


@ray.remote(num_cpus=0)
class Actor:
    """A node: finishes at once what it is given."""

    def run(self, instruction: str) -> str:
        """A rollout."""
        return RESULT

    def pid(self) -> int:
        """Its process."""
        return os.getpid()


class RayActors:
    """The driver as an arm."""

    loop: ClosedLoop

    def __init__(self) -> None:
        self._actors = [Actor.remote() for _ in range(NODES)]
        self._at_work = [0] * NODES
        pids = ray.get([actor.pid.remote() for actor in self._actors])
        self._processes = {os.getpid(), *descendants(os.getpid())} - set(pids)
        self._calls: set[asyncio.Task[None]] = set()

    def submit(self, ids: list[str]) -> None:
        """One call for each, of the actor that has fewer at work."""
        for name in ids:
            least = min(range(NODES), key=self._at_work.__getitem__)
            self._at_work[least] += 1
            call = asyncio.create_task(self._one(name, least, self._actors[least].run.remote(INSTRUCTION)))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    def cpu(self) -> float:
        """Of the driver and of Ray's daemons."""
        return sum(map(cpu_seconds, self._processes))

    async def _one(self, name: str, actor: int, result: Any) -> None:
        await result
        self._at_work[actor] -= 1
        self.loop.done([name])


def descendants(pid: int) -> list[int]:
    """All processes that a process started, and those that they did."""
    found = [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
    return found + [each for child in found for each in descendants(child)]


async def main() -> None:
    """Starts Ray, serves."""
    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        ray.init(
            num_cpus=NODES,
            include_dashboard=False,
            object_store_memory=200 * 2**20,
            logging_level="ERROR",
            _temp_dir=folder,
        )
        try:
            await serve(RayActors())
        finally:
            ray.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
