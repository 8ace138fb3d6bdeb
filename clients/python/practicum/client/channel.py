"""The connection under a client."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import grpc

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Without it a ping that nobody answers is waited for a minute, whatever the line before says.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # How long connecting may take: a stopped process takes connections, and says nothing.
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


def connect(address: str) -> grpc.Channel:
    """A connection to a service on loopback or a trusted network."""
    return grpc.insecure_channel(address, options=OPTIONS)


class Client(ABC):
    """What clients share: each is closed at the end."""

    @abstractmethod
    def close(self) -> None:
        """Closes its connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
