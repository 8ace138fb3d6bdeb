"""Calls to the gateway and the proxy that wait for a service which is not up yet, or has no room now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from grpc import aio

from practicum.node.failures import failure, retry_delay
from practicum.v1 import message_pb2

Answer = TypeVar("Answer")


async def patiently(
    call: Callable[[float], Awaitable[Answer]], *, timeout: float, source: message_pb2.ErrorSource.ValueType
) -> Answer:
    """Makes a call (given the seconds it has), again for as long as the service says when to repeat it.

    Raises InfrastructureError. A call that may have been carried out is never repeated: only an answer with RetryInfo
    says that it was not. The call itself has to wait for a connection (`wait_for_ready`).
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return await call(max(deadline - time.monotonic(), 0.0))
        except aio.AioRpcError as error:
            delay = retry_delay(error)
            if delay is None or time.monotonic() + delay >= deadline:
                raise failure(error, source) from error
            await asyncio.sleep(delay)
