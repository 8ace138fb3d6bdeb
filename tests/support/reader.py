"""Reads a stream of Messages in a thread, so that a test goes on meanwhile."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc

from practicum.v1 import executor_pb2, executor_pb2_grpc, message_pb2

SECONDS = 20.0


class Reader:
    """What a subscription or a watch gives, one Message after the other; at the end how it ended."""

    def __init__(self, call: grpc.Call) -> None:
        self._call = call
        self._found: queue.SimpleQueue[message_pb2.Message | grpc.StatusCode] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def take(self, count: int) -> list[message_pb2.Message]:
        """The next so many."""
        taken = []
        for _ in range(count):
            found = self._found.get(timeout=SECONDS)
            assert isinstance(found, message_pb2.Message), f"the stream ended with {found} after {len(taken)} messages"
            taken.append(found)
        return taken

    def until(self, wanted: Callable[[message_pb2.Message], bool]) -> message_pb2.Message:
        """The next that is wanted; those before it are dropped."""
        while True:
            (message,) = self.take(1)
            if wanted(message):
                return message

    def rest(self) -> list[message_pb2.Message]:
        """What comes until the stream ends in order."""
        taken = list(iter(lambda: self._found.get(timeout=SECONDS), grpc.StatusCode.OK))
        assert all(isinstance(found, message_pb2.Message) for found in taken), f"the stream ended with {taken[-1]}"
        return taken  # type: ignore[return-value]

    def ended(self) -> grpc.StatusCode:
        """How the stream ended; nothing came before."""
        found = self._found.get(timeout=SECONDS)
        assert isinstance(found, grpc.StatusCode), f"something came: {found}"
        return found

    def _read(self) -> None:
        try:
            for response in self._call:  # type: ignore[attr-defined]
                for message in response.messages:
                    self._found.put(message)
        except grpc.RpcError:
            pass
        self._found.put(self._call.code())

    def close(self) -> None:
        """Reads no more."""
        self._call.cancel()


@contextmanager
def subscribed(
    stub: executor_pb2_grpc.ExecutorServiceStub, session_id: str = "t/0", **request: object
) -> Iterator[Reader]:
    """A subscription that has begun."""
    call = stub.Subscribe(executor_pb2.SubscribeRequest(session_id=session_id, **request), timeout=60)  # type: ignore[arg-type]
    call.initial_metadata()
    reader = Reader(call)
    try:
        yield reader
    finally:
        reader.close()
