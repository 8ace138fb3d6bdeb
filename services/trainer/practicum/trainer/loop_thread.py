"""An event loop in a thread of its own: gRPC lives there, while AReaL and torch keep the main thread busy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from practicum.trainer.outcome import RunStopped

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads. `stopping` is set by `interrupt`, which also ends every `wait`."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.on_stop: list[Callable[[], None]] = []
        self._waits: set[Future[Any]] = set()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="grpc", daemon=True)
        self._thread.start()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Starts a coroutine there."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Waits for a short coroutine; stopping does not end it."""
        return self.start(coroutine).result()

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Waits for a coroutine that may take long. Raises RunStopped when the run is told to stop."""
        self.check()
        future = self.start(coroutine)
        self._waits.add(future)
        try:
            self.check()  # Again: the signal may have come in between.
            return future.result()
        except CancelledError as error:
            raise RunStopped from error
        finally:
            future.cancel()
            self._waits.discard(future)

    def check(self) -> None:
        """Raises RunStopped when the run was told to stop."""
        if self.stopping.is_set():
            raise RunStopped

    def interrupt(self) -> None:
        """Tells the run to stop. May be called by a signal handler: the work is done in the thread."""
        self.stopping.set()
        self.loop.call_soon_threadsafe(self._end_waits)

    def _end_waits(self) -> None:
        for future in list(self._waits):
            future.cancel()
        for call in self.on_stop:
            call()

    def make(self, factory: Callable[[], T]) -> T:
        """Calls a factory there, for what belongs to the loop it is made in."""

        async def made() -> T:
            return factory()

        return self.call(made())

    def close(self) -> None:
        """Ends the loop."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(5)
