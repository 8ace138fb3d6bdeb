"""Group commit: what is decided while one transaction runs shares the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import structlog

from practicum.common.errors import Unavailable
from practicum.executor.store.batch import Batch, TasksKnown
from practicum.executor.store.changes import Change
from practicum.executor.store.commits import Commits
from practicum.executor.store.rows import TaskRow
from practicum.executor.store.sql import SqlStore, StoreFailed

log = structlog.get_logger(__name__)

RETRY_SECONDS = 1.0
LATER_SECONDS = 0.05
MANY_ROWS, GATHER_SECONDS = 8, 0.0005
"""After a batch of many rows more is on its way: to wait for it halves commits and frames. Measured with 32 rollouts in
flight: 0.28 ms of CPU a rollout without, 0.20 so, at the same rate and latency; longer waits only add latency.
"""


class Writer:
    """Commits at once when idle, and in batches under load.

    When the store can't be written (a full disk, a database that restarts), new tasks are refused and everything else
    is kept in memory and tried again: what was decided is never forgotten. Any other failure of the store ends the
    executor, because memory and disk would differ: started again, it goes on with what is on disk, and nobody was told
    more.
    """

    def __init__(self, store: SqlStore) -> None:
        self.commits = Commits()
        self._store = store
        self._batch = Batch()
        self._wake = asyncio.Event()
        self._closing = False
        self._last_rows = 0
        self._later: asyncio.TimerHandle | None = None
        # A thread of its own, so that commits never queue behind reads.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store-writer")

    def gather(self) -> Batch:
        """The batch that is being gathered; what is added before the caller gives way is written together."""
        self._wake.set()
        return self._batch

    def gather_later(self) -> Batch:
        """The same, where nobody waits: it is written with the next batch, or soon if there is none."""
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(LATER_SECONDS, self._wake.set)
        return self._batch

    async def make(self, change: Change) -> Any:
        """Returns what came of a change after it is on disk. It is made even if the caller gives up."""
        return await asyncio.shield(self.gather().make(change))

    def close(self) -> None:
        """Lets `run` end once everything is committed."""
        self._closing = True
        self._wake.set()

    async def run(self) -> None:
        """Commits until it is closed."""
        try:
            while not self._closing:
                await self._wake.wait()
                # What this turn of the loop decides joins, such as who runs a new task.
                await asyncio.sleep(GATHER_SECONDS if self._last_rows >= MANY_ROWS else 0)
                self._wake.clear()
                await self._commit(self._take())
            await self._commit(self._take())
        finally:
            self._thread.shutdown()

    def _take(self) -> Batch:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        batch, self._batch = self._batch, Batch()
        return batch

    async def _commit(self, batch: Batch) -> None:
        """Commits until it succeeds; at shutdown once, since nodes were not acked and send what was not kept again."""
        uncertain = False
        while True:
            began = perf_counter()
            try:
                answers = await asyncio.get_running_loop().run_in_executor(self._thread, self._store.commit, batch)
            except TasksKnown as known:
                self._forget(batch.reject_known(known.bodies), batch)
            except StoreFailed as error:
                self.commits.failed += 1
                log.error("store_failed", reason=str(error))
                uncertain |= error.uncertain  # For good: a later failure says nothing of an earlier commit.
                self._refuse(error, batch, uncertain=uncertain)
                if self._closing:
                    return
                await asyncio.sleep(RETRY_SECONDS)
            else:
                self._last_rows = batch.rows
                self.commits.made(batch.rows, perf_counter() - began)
                batch.written(answers)
                return

    def _refuse(self, error: StoreFailed, batch: Batch, *, uncertain: bool) -> None:
        """Refuses new tasks; not those that may be on disk, whose submitters wait until that is known."""
        refused = self._batch.refuse_tasks(refusal(error))
        if not uncertain:
            refused += batch.refuse_tasks(refusal(error))
        self._forget(refused, batch)

    def _forget(self, tasks: Sequence[TaskRow], batch: Batch) -> None:
        """Takes what was decided of tasks that were not taken out of what is written now, and next."""
        batch.forget(tasks)
        self._batch.forget(tasks)


def refusal(error: StoreFailed) -> Unavailable:
    """What submitters are told."""
    detail = f"the store can't be written ({error}); nothing was taken"
    return Unavailable(detail, reason="STORE_FAILED", retry_after_seconds=5.0)
