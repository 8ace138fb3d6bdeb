"""What tests of every kind share."""

from __future__ import annotations

import socket

import pytest


def unused_address() -> str:
    """A loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def address() -> str:
    return unused_address()
