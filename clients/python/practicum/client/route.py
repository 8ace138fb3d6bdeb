"""The way to the executor that leads, where several have one database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import grpc

from practicum.client.channel import connect
from practicum.client.errors import CallFailed, failure
from practicum.v1 import executor_pb2_grpc

# Longer than any executor takes to lead after another.
PATIENCE_SECONDS = 30.0
PAUSE_SECONDS = 0.1

Stub = executor_pb2_grpc.ExecutorServiceStub
T = TypeVar("T")


class Route:
    """Executors, and which of them is called next."""

    def __init__(self, addresses: str) -> None:
        """`addresses`: of one executor or of several, with commas between."""
        self.addresses = addresses
        self._listed = [address.strip() for address in addresses.split(",")]
        self.address = self._listed[0]
        """Who is called next."""
        self._several = len(self._listed) > 1
        self._channels: dict[str, grpc.Channel] = {}
        self._lost_at: float | None = None

    @property
    def stub(self) -> Stub:
        """Of who is called next."""
        if self.address not in self._channels:
            self._channels[self.address] = connect(self.address)
        return executor_pb2_grpc.ExecutorServiceStub(self._channels[self.address])

    def call(self, make: Callable[[Stub], T]) -> T:
        """Makes a call, and again elsewhere as long as there is use in it. Raises CallFailed."""
        while True:
            address = self.address
            try:
                answer = make(self.stub)
            except grpc.RpcError as error:
                self._turn_or_raise(address, error)
            else:
                self.reached()
                return answer

    def stream(self, make: Callable[[Stub], Iterator[T]]) -> Iterator[T]:
        """Makes a call that is answered by a stream; once it has begun, it is not made again. Raises CallFailed."""
        begun = False
        while True:
            address = self.address
            try:
                for response in make(self.stub):
                    begun = True
                    self.reached()
                    yield response
            except grpc.RpcError as error:
                if begun:
                    raise failure(error, self.addresses) from error
                self._turn_or_raise(address, error)
            else:
                return

    def turn(self, address: str, failed: CallFailed) -> bool:
        """After a call to this address failed: chooses who is called next, unless another call has done so.

        Returns whether the leader may be found so; it pauses then.
        """
        if failed.code not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            self._lost_at = None
            return False
        if leader := failed.metadata.get("leader"):
            self.address = leader
        elif address == self.address:
            here = self._listed.index(address) if address in self._listed else -1
            self.address = self._listed[(here + 1) % len(self._listed)]
        self._lost_at = self._lost_at or time.monotonic()
        # Who is no leader is one of several, whether the caller knew that or not.
        self._several |= failed.reason == "NOT_LEADER"
        if not self._several or time.monotonic() - self._lost_at > PATIENCE_SECONDS:
            self._lost_at = None
            return False
        time.sleep(PAUSE_SECONDS)
        return True

    def reached(self) -> None:
        """A call succeeded."""
        self._lost_at = None

    def close(self) -> None:
        """Closes the connections."""
        for channel in self._channels.values():
            channel.close()

    def _turn_or_raise(self, address: str, error: grpc.RpcError) -> None:
        failed = failure(error, self.addresses)
        if not self.turn(address, failed):
            raise failed from error
