"""Repeats a call while its service can't be reached or has no room."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
import structlog
import tenacity
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status

log = structlog.get_logger(__name__)
T = TypeVar("T")

WORTH_REPEATING = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED})
BACKOFF = tenacity.wait_random_exponential(multiplier=0.2, max=5.0)


async def repeated(call: Callable[[], Awaitable[T]], *, seconds: float) -> T:
    """The call's answer; repeats for so many seconds, as long as the service's RetryInfo or a backoff says."""
    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(worth_repeating),
        wait=wait,
        stop=tenacity.stop_after_delay(seconds),
        reraise=True,
    )

    async def attempt() -> T:
        return await call()

    return await retrying(attempt)


def worth_repeating(error: BaseException) -> bool:
    """Whether the call may succeed later."""
    return isinstance(error, aio.AioRpcError) and error.code() in WORTH_REPEATING


def wait(state: tenacity.RetryCallState) -> float:
    """Seconds to wait: what the service asked for, if it did."""
    error = state.outcome.exception() if state.outcome else None
    asked = retry_info(error) if isinstance(error, aio.AioRpcError) else None
    return asked if asked is not None else BACKOFF(state)


def retry_info(error: aio.AioRpcError) -> float | None:
    """The seconds of the error's RetryInfo."""
    status = rpc_status.from_call(error)
    info = error_details_pb2.RetryInfo()
    for detail in status.details if status else ():
        if detail.Unpack(info):
            return float(info.retry_delay.ToTimedelta().total_seconds())
    return None


def reason(error: aio.AioRpcError) -> str:
    """The error in a sentence."""
    return f"{error.code().name}: {error.details()}"
