"""The process of one run, seen from the service: started, listened to, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from practicum.trainer.journal import LENGTH
from practicum.v1 import trainer_pb2

TAIL_LINES = 12
MOST_CHARACTERS = 4000
# After this the process is killed; it ends by itself a little earlier.
STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Addresses of the services that runs call; those of several executors have commas between."""

    executor: str
    inference: str


class Child:
    """One process, in a process group of its own. `folder`: of the run, holds spec and logs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process
        self._events: int
        self.stopping = False

    async def start(self, neighbours: Neighbours) -> None:
        """Starts it."""
        self._events, writing = os.pipe()
        command = [sys.executable, "-m", "practicum.trainer.run"]
        command += ["--spec", str(self._folder / "spec.binpb"), "--events", str(writing)]
        command += ["--executor", neighbours.executor, "--inference", neighbours.inference]
        command += ["--parent", str(os.getpid()), "--stop-seconds", str(STOP_SECONDS - 5.0)]
        with (self._folder / "stdout.log").open("ab") as out, (self._folder / "stderr.log").open("wb") as err:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=[writing], process_group=0
            )
        os.close(writing)

    async def listen(self, on_event: Callable[[trainer_pb2.RunEvent], None]) -> int:
        """Passes its events on as they come. Returns its exit code; negative for a signal."""
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(self._events, "rb")
        )
        try:
            while True:
                (length,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
                on_event(trainer_pb2.RunEvent.FromString(await stream.readexactly(length)))
        except asyncio.IncompleteReadError:
            return await self._process.wait()
        finally:
            transport.close()

    async def stop(self) -> None:
        """Asks it to stop, and makes sure that it does."""
        self.stopping = True
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return  # It ended by itself.

    def last_words(self) -> str:
        """The end of what it wrote to stderr."""
        text = (self._folder / "stderr.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-TAIL_LINES:])[-MOST_CHARACTERS:]
