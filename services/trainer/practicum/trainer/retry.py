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

GONE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED})
"""A server that stops cancels the calls that outlast its grace."""
WORTH_REPEATING = GONE | {grpc.StatusCode.RESOURCE_EXHAUSTED}
MOST_PAUSE_SECONDS = 5.0


async def repeated(
    call: Callable[[], Awaitable[T]], *, seconds: float, most_pause_seconds: float = MOST_PAUSE_SECONDS
) -> T:
    """The call's answer; repeats for so many seconds, each time after what RetryInfo or a backoff says."""
    backoff = tenacity.wait_random_exponential(multiplier=0.2, max=most_pause_seconds)
    retrying = tenacity.AsyncRetrying(
        retry=tenacity.retry_if_exception(worth_repeating),
        wait=lambda state: asked_seconds(state) or backoff(state),
        stop=tenacity.stop_after_delay(seconds),
        reraise=True,
    )

    async def attempt() -> T:
        return await call()

    return await retrying(attempt)


def worth_repeating(error: BaseException) -> bool:
    """Whether the call may succeed later."""
    return isinstance(error, aio.AioRpcError) and error.code() in WORTH_REPEATING


def asked_seconds(state: tenacity.RetryCallState) -> float | None:
    """How long the service asked to wait, if it did."""
    error = state.outcome.exception() if state.outcome else None
    return retry_info(error) if isinstance(error, aio.AioRpcError) else None


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
