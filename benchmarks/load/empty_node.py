"""A node whose agents do nothing: `python -m load.empty_node --executor ADDRESS`.

What it says between two frames shares one, as a good node does.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from grpc import aio

from load.payload import EMPTY, WHOLE, finished, messages
from load.processes import READY
from practicum.common.channels import connect
from practicum.v1 import dispatch_pb2, dispatch_pb2_grpc


class EmptyNode:
    """Finishes at once what it is given."""

    def __init__(self, node_id: str, slots: int) -> None:
        kinds = [EMPTY, WHOLE]
        self._register = dispatch_pb2.Register(node_id=node_id, incarnation="1", slots=slots, agent_kinds=kinds)
        self._outbox = dispatch_pb2.ConnectRequest()
        self._wake = asyncio.Event()
        self._written = asyncio.Event()
        self._held: dict[str, None] = {}
        self._talks: set[asyncio.Task[None]] = set()

    async def run(self, address: str) -> None:
        """Registers, and works until the stream ends."""
        async with connect(address) as channel, asyncio.TaskGroup() as tasks:
            call = dispatch_pb2_grpc.DispatchServiceStub(channel).Connect()
            await call.write(dispatch_pb2.ConnectRequest(register=self._register))
            first = await call.read()
            print(READY, flush=True)
            tasks.create_task(self._write(call))
            tasks.create_task(self._beat(first.registered.heartbeat_interval.ToTimedelta().total_seconds() / 2))
            while (frame := await call.read()) is not aio.EOF:
                self._obey(frame)
            raise ConnectionError("the executor ended the stream")

    def _obey(self, frame: dispatch_pb2.ConnectResponse) -> None:
        for assignment in frame.assignments:
            self._held[assignment.lease_id] = None
            if assignment.task.agent.kind == EMPTY:
                self._finish(assignment)
            else:
                self._start(self._talk(assignment))
        for lease_id in (*frame.acked_leases, *frame.lost_leases):
            self._held.pop(lease_id, None)

    def _start(self, talk: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(talk)
        self._talks.add(task)
        task.add_done_callback(self._talks.discard)

    def _finish(self, assignment: dispatch_pb2.Assignment) -> None:
        self._outbox.finished.append(finished(assignment))
        self._wake.set()

    async def _talk(self, assignment: dispatch_pb2.Assignment) -> None:
        """Says one message after the other, each when the one before has gone, as they happen in a conversation."""
        for message in messages(assignment):
            self._outbox.messages.append(message)
            self._wake.set()
            await self._written.wait()
        self._finish(assignment)

    async def _write(self, call: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            frame, self._outbox = self._outbox, dispatch_pb2.ConnectRequest()
            written, self._written = self._written, asyncio.Event()
            await call.write(frame)
            written.set()

    async def _beat(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            beat = dispatch_pb2.Heartbeat(lease_ids=list(self._held), running=len(self._held))
            self._outbox.heartbeat.CopyFrom(beat)
            self._wake.set()


def main() -> None:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executor", required=True)
    parser.add_argument("--node-id", required=True)
    parser.add_argument("--slots", type=int, default=256)
    arguments = parser.parse_args()
    try:
        asyncio.run(EmptyNode(arguments.node_id, arguments.slots).run(arguments.executor))
    except* (aio.AioRpcError, asyncio.InvalidStateError, ConnectionError) as errors:
        print(f"ended: {errors.exceptions[0]!r}", file=sys.stderr)
        raise SystemExit(1) from None  # The executor was ended: the benchmark's end, or its intention.


if __name__ == "__main__":
    main()
