"""A service that is stopped in its tracks keeps its connections, and answers nothing: its callers notice."""

from __future__ import annotations

import time

import grpc
import pytest
from support.pairs import stopped
from support.services import Service, Services

from practicum.client import channel
from practicum.common import channels
from practicum.v1 import executor_pb2, executor_pb2_grpc

REQUEST = executor_pb2.ListNodesRequest()
# To wait less. What is too long by far is gRPC's own patience, 60 s.
TIMES_AS_FAST, ENOUGH_SECONDS = 10, 10.0


@pytest.fixture
def executor(services: Services) -> Service:
    return services.executor()


def hasty(options: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The same options with shorter times."""
    return [(name, value // TIMES_AS_FAST if name.endswith("_ms") else value) for name, value in options]


async def test_services_notice_that_a_service_is_silent(executor: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its calls end as if it were gone."""
    monkeypatch.setattr(channels, "OPTIONS", hasty(channels.OPTIONS))
    async with channels.connect(executor.address) as connection:
        stub: executor_pb2_grpc.ExecutorServiceAsyncStub = executor_pb2_grpc.ExecutorServiceStub(connection)
        await stub.ListNodes(REQUEST)
        began = time.monotonic()
        with stopped(executor), pytest.raises(grpc.RpcError) as caught:
            await stub.ListNodes(REQUEST, timeout=60)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert time.monotonic() - began < ENOUGH_SECONDS


def test_clients_notice_that_a_service_is_silent(executor: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise."""
    monkeypatch.setattr(channel, "OPTIONS", hasty(channel.OPTIONS))
    with channel.connect(executor.address) as connection:
        stub = executor_pb2_grpc.ExecutorServiceStub(connection)
        stub.ListNodes(REQUEST)
        began = time.monotonic()
        with stopped(executor), pytest.raises(grpc.RpcError) as caught:
            stub.ListNodes(REQUEST, timeout=60)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert time.monotonic() - began < ENOUGH_SECONDS
