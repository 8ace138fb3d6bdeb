"""Our executor: `python -m rivals.ours full|process`. On disk, two empty nodes, caller and consumer in this process.

Does all of what the others leave out: accepted is committed, attempts are leased and fenced, trajectories are stored
and delivered until they are acked.
"""

from __future__ import annotations

import asyncio
import sys

from load.closed_loop import ClosedLoop
from load.executor_client import ExecutorClient, executor_client
from load.executors import executor_and_nodes
from load.processes import cpu_seconds

from rivals.arm import serve


class Ours:
    """The executor as an arm."""

    def __init__(self, client: ExecutorClient, pid: int) -> None:
        self._client = client
        self._pid = pid

    @property
    def loop(self) -> ClosedLoop:
        """Whom the client tells what ended."""
        return self._client.loop

    @loop.setter
    def loop(self, loop: ClosedLoop) -> None:
        self._client.loop = loop

    def submit(self, ids: list[str]) -> None:
        """One SubmitTasks for all."""
        self._client.begin(ids)

    def cpu(self) -> float:
        """The executor's."""
        return cpu_seconds(self._pid)


async def main(durability: str) -> None:
    """Starts, serves."""
    with executor_and_nodes(durability) as executor:
        async with executor_client(executor.address) as client:
            await serve(Ours(client, executor.pid))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
