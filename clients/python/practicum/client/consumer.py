"""A named consumer's stream: acks, credits, and a new stream when one breaks."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

import grpc

from practicum.client.errors import failure
from practicum.client.events import Assembler
from practicum.client.route import Route
from practicum.v1 import executor_pb2, trajectory_pb2

BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)

Request = executor_pb2.StreamTrajectoriesRequest


class Consumer:
    """Reads what one name is to be told."""

    def __init__(self, route: Route, opened: executor_pb2.OpenConsumer) -> None:
        self._route = route
        self._opened = opened
        self._assembler = Assembler()
        self._failures = 0
        self._left = -1

    def trajectories(self, limit: int) -> Iterator[trajectory_pb2.Trajectory]:
        """Whole trajectories, over as many streams as it takes: so many, or without an end when it is 0."""
        self._left = limit or -1
        while self._left:
            address = self._route.address
            try:
                yield from self._stream()
            except grpc.RpcError as error:
                self._bridge(address, error)

    def _stream(self) -> Iterator[trajectory_pb2.Trajectory]:
        requests: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        requests.put(Request(open=self._opened))
        self._assembler.restart()
        call = self._route.stub.StreamTrajectories(iter(requests.get, None))
        try:
            for response in call:
                self._failures = 0
                self._route.reached()
                for cursor, trajectory in self._assembler.trajectories(response.events):
                    yield trajectory
                    requests.put(Request(ack=executor_pb2.AckCursor(cursor=cursor)))
                    self._left -= 1
                    if not self._left:
                        return
                if not self._assembler.within_parts:
                    requests.put(Request(ack=executor_pb2.AckCursor(cursor=response.events[-1].cursor)))
                requests.put(Request(credits=executor_pb2.GrantCredits(credits=len(response.events))))
        finally:
            requests.put(None)
            leave(call)

    def _bridge(self, address: str, error: grpc.RpcError) -> None:
        """Waits before the next stream; raises when there is no use in one."""
        failed = failure(error, self._route.addresses)
        if self._route.turn(address, failed):
            return
        if failed.code is not grpc.StatusCode.UNAVAILABLE or self._failures == len(BACKOFF_SECONDS):
            raise failed from error
        time.sleep(BACKOFF_SECONDS[self._failures])
        self._failures += 1


def leave(call: Iterable[object]) -> None:
    """Reads a closed stream to its end, which is when its acks are on disk. What comes meanwhile comes again."""
    with suppress(grpc.RpcError):
        for _ in call:
            pass
