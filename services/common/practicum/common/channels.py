"""Channels to other services: large messages, keepalive, quick reconnects."""

from __future__ import annotations

from grpc import aio

from practicum.common.server import MAX_MESSAGE_BYTES

OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Without it a ping that nobody answers is waited for a minute, whatever the line before says.
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
]


def connect(address: str) -> aio.Channel:
    """A channel to a service on loopback or a trusted network. Close it, or use it as an async context manager."""
    return aio.insecure_channel(address, options=OPTIONS)
