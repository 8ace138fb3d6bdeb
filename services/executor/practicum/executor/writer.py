"""Group commit: what is asked for while one transaction runs shares the next one."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from practicum.common.errors import Unavailable
from practicum.executor.changes import AddTasks, Change
from practicum.executor.store import SqlStore

log = structlog.get_logger(__name__)

RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A change and whom to tell."""

    change: Change
    done: asyncio.Future[Any]


class Writer:
    """Commits at once when idle, and in batches under load.

    When the store can't be written (a full disk), new tasks are refused and everything else is kept in memory and
    tried again: what was decided is never forgotten.
    """

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._waiting: list[Waiting] = []
        self._wake = asyncio.Event()
        self._closing = False
        # A thread of its own, so that commits never queue behind reads.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-writer")

    async def write(self, change: Change) -> Any:
        """Returns what came of the change after it is on disk. The change is made even if the caller gives up."""
        return await asyncio.shield(self.enqueue(change))

    def enqueue(self, change: Change) -> asyncio.Future[Any]:
        """Puts a change in line; changes are made in the order of this call."""
        waiting = Waiting(change, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._wake.set()
        return waiting.done

    def close(self) -> None:
        """Lets `run` end once everything is committed."""
        self._closing = True
        self._wake.set()

    async def run(self) -> None:
        """Commits until it is closed."""
        while self._waiting or not self._closing:
            await self._wake.wait()
            self._wake.clear()
            batch, self._waiting = self._waiting, []
            again = await self._commit(batch)
            # At shutdown nobody can wait for room: nodes were not acked, and will send what was not kept again.
            if again and not self._closing:
                self._waiting = again + self._waiting
                await asyncio.sleep(RETRY_SECONDS)
                self._wake.set()
        self._thread.shutdown()

    async def _commit(self, batch: list[Waiting]) -> list[Waiting]:
        """Makes changes in one transaction. Returns what has to be tried again."""
        changes = [waiting.change for waiting in batch]
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._thread, self._store.commit, changes)
        except OperationalError as error:
            log.error("store_failed", reason=str(error.orig), changes=len(batch))
            return refuse_tasks(batch, error)
        except SQLAlchemyError as error:
            if len(batch) == 1:
                log.error("change_refused", change=type(batch[0].change).__name__, reason=type(error).__name__)
                batch[0].done.set_exception(error)
                return []
            # One of them is wrong in itself: it alone fails, the others are made.
            return [kept for waiting in batch for kept in await self._commit([waiting])]
        self._finish(batch, results)
        return []

    @staticmethod
    def _finish(batch: list[Waiting], results: list[Any]) -> None:
        for waiting, result in zip(batch, results, strict=True):
            if not waiting.done.cancelled():
                waiting.done.set_result(result)


def refuse_tasks(batch: list[Waiting], error: OperationalError) -> list[Waiting]:
    """Tells submitters that nothing was taken. Returns what has to be tried again."""
    kept = []
    for waiting in batch:
        if isinstance(waiting.change, AddTasks):
            detail = f"the store can't be written ({error.orig}); nothing was taken"
            waiting.done.set_exception(Unavailable(detail, reason="STORE_FAILED", retry_after_seconds=5.0))
        else:
            kept.append(waiting)
    return kept
