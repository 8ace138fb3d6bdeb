"""What every adapter is: a program that starts a server and two nodes, and runs closed loops through them when told.


It reads lines `IN_FLIGHT ROLLOUTS` and answers each with a line of JSON; it ends, with all that it started, when its
input does. Nothing but the standard library is imported here: each adapter runs in its rival's own environment.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import sys
from typing import Protocol

from load.closed_loop import ClosedLoop
from load.processes import READY

INSTRUCTION = "i" * 200
RESULT = "r" * 300
NODES = 2


class Arm(Protocol):
    """A way to carry rollouts. It tells `loop` which have ended."""

    loop: ClosedLoop

    def submit(self, ids: list[str]) -> None:
        """Begins to submit these rollouts, and returns at once."""

    def cpu(self) -> float:
        """CPU seconds that the server used so far."""


async def serve(arm: Arm) -> None:
    """Carries out what is asked on the standard input, until it ends."""
    print(READY, flush=True)
    for number in itertools.count():
        line = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            return
        in_flight, rollouts = map(int, line.split())
        arm.loop = ClosedLoop(arm.submit, rollouts, in_flight, prefix=f"r{number}-")
        run = await arm.loop.run(arm.cpu)
        answer = {"rate": run.rate, "cpu_ms": run.cpu_ms, "p50_ms": run.p50_ms}
        print(json.dumps(answer), flush=True)


def unused_port() -> int:
    """A loopback port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
