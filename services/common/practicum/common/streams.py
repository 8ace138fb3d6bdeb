"""The reading side of a bidi stream, beside its writing side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog
from google.protobuf.message import DecodeError

from practicum.common.errors import InvalidArgument, PracticumError

log = structlog.get_logger(__name__)


@asynccontextmanager
async def reading(
    reader: Coroutine[Any, Any, None], end: Callable[[PracticumError | None], None]
) -> AsyncIterator[None]:
    """Runs `reader` for as long as the context lasts; calls `end` when it is through, with its error if it raised."""

    async def run() -> None:
        try:
            await reader
        except* PracticumError as errors:
            end(first_of(errors))
        except* DecodeError:
            end(InvalidArgument({"": "the frame is no message of this stream"}, reason="FRAME_MALFORMED"))
        except* Exception as errors:
            log.error("stream_failed", error=type(first_of(errors)).__name__, exc_info=first_of(errors))
            end(PracticumError("the stream failed in this service; its log tells why", reason="INTERNAL"))
        else:
            end(None)

    task = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        reader.close()  # Where the context ended at once it was never begun.


def first_of(errors: BaseExceptionGroup[Any]) -> Any:
    """The first error of a group of groups, which is the interesting one."""
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first
