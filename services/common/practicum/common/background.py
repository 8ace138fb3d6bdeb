"""Work that goes on beside a service's calls, and must not die unseen."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog

log = structlog.get_logger(__name__)


@asynccontextmanager
async def background(work: Coroutine[Any, Any, None], *, stop: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Runs `work` for as long as the context lasts. At the end it is told to `stop`, or cancelled.

    If it fails, this process is told to terminate: half a service is worse than none. The error is raised at the end.
    """
    task = asyncio.create_task(work)
    task.add_done_callback(terminate_if_failed)
    try:
        yield
    finally:
        (stop or task.cancel)()
        with suppress(asyncio.CancelledError):
            await task


def terminate_if_failed(task: asyncio.Task[None]) -> None:
    """Ends the process in an orderly way."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("background_work_failed", error=repr(error))
        os.kill(os.getpid(), signal.SIGTERM)
