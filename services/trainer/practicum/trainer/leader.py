"""Calls to the executor that leads, wherever it is: a call that found it gone is made again elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from grpc import aio

from practicum.common.executors import Executors
from practicum.trainer.retry import GONE, MOST_PAUSE_SECONDS, repeated
from practicum.v1 import executor_pb2_grpc

T = TypeVar("T")
Stub: TypeAlias = "executor_pb2_grpc.ExecutorServiceAsyncStub"

# Where there are several executors one of them leads soon.
MOST_SEARCH_SECONDS = 0.5


def stub_of(executors: Executors) -> Stub:
    """The calls of who is called next."""
    stub: Stub = executor_pb2_grpc.ExecutorServiceStub(executors.channel)
    return stub


def most_pause_seconds(executors: Executors) -> float:
    """The longest wait between two calls that nobody asked to wait for."""
    return MOST_SEARCH_SECONDS if executors.several else MOST_PAUSE_SECONDS


async def call_leader(executors: Executors, make: Callable[[Stub], Awaitable[T]], *, seconds: float) -> T:
    """The call's answer; repeats it for so many seconds. It may reach two executors, so it has to be idempotent."""

    async def attempt() -> T:
        address = executors.address
        try:
            return await make(stub_of(executors))
        except aio.AioRpcError as error:
            # Who has no room leads: another would only send back here.
            if error.code() in GONE:
                executors.failed(address, error)
            raise

    return await repeated(attempt, seconds=seconds, most_pause_seconds=most_pause_seconds(executors))
