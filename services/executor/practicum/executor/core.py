"""Joins scheduler and store: decisions are made in memory at once, and nobody is told before they are on disk."""

from __future__ import annotations

import asyncio
import gc
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import count

import structlog

from practicum.common.background import background
from practicum.executor.bell import Bell
from practicum.executor.observing.events import OUTCOMES, detailed, ids_of, tell
from practicum.executor.observing.tally import Tally
from practicum.executor.scheduling.scheduler import Rollout, Scheduler
from practicum.executor.sessions.journal import Journal
from practicum.executor.store.changes import BuryTasks
from practicum.executor.store.labels import matches
from practicum.executor.store.results import Recent, Result
from practicum.executor.store.rows import ResultRow
from practicum.executor.store.sql import SqlStore
from practicum.executor.store.writer import Writer
from practicum.executor.tasks.backlog import USABLE, Backlog, OpenTask, Recovery, place_of, rollout_ids
from practicum.executor.tasks.intake import MAX_BACKLOG, Intake
from practicum.executor.tasks.outcomes import Ended, ended_here
from practicum.executor.tasks.tombstones import Tombstones
from practicum.v1 import message_pb2, task_pb2, trajectory_pb2

log = structlog.get_logger(__name__)

CANCEL_AT_ONCE = 500
CUT = message_pb2.ErrorPayload(reason="STRAGGLER_CUT", detail="enough rollouts of its group had ended")


@dataclass(frozen=True, slots=True)
class Settings:
    """What whoever runs an executor may choose."""

    lease_seconds: float = 30.0
    max_backlog: int = MAX_BACKLOG
    queue_weights: Mapping[str, float] | None = None
    queue_limits: Mapping[str, int] | None = None


class Executor:
    """One active executor. Methods are called from one event loop, within `running`."""

    def __init__(self, store: SqlStore, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        self.settings = settings
        self.store = store
        self.writer = Writer(store)
        self.journal = Journal(store, self.writer)
        self.backlog = Backlog()
        self.scheduler = Scheduler(
            lease_seconds=settings.lease_seconds,
            new_lease_id=lease_ids().__next__,
            queue_weights=settings.queue_weights or {},
            jitter=random.random,
        )
        self.work = asyncio.Event()
        """Set when there may be something to give out."""
        self.events = Bell()
        """Rings when results are on disk."""
        self.stop_leases: Callable[[Sequence[tuple[str, str]], str], None] = lambda leases, reason: None
        """Tells nodes (node id, lease id) to stop, and why."""
        tasks, results = store.last_numbers()
        self.recent = Recent(since=results)
        self.tally = Tally()
        self.last_result = results
        self.intake = Intake(
            store,
            self.writer,
            self.backlog,
            self.scheduler,
            last_number=tasks,
            max_backlog=settings.max_backlog,
            queue_limits=settings.queue_limits,
            withdrawn=self.journal.ended,
        )
        self.tombstones = Tombstones(store.tombstones())
        self.returning: dict[str, asyncio.Future[None]] = {}
        """Tasks whose dead letters are being put back, with what to wait for before they are cancelled."""
        self._ending: set[str] = set()
        with collector_paused():
            recovery = Recovery(self.backlog, self.scheduler, store.attempts())
            recovery.run(store.open_tasks(), now=time.monotonic(), wall=time.time())
        if rollouts := len(self.scheduler.rollouts):
            log.info("recovered", tasks=len(self.backlog.tasks), rollouts=rollouts, leases=len(self.scheduler.leases))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Commits for as long as the context lasts, and what waits at its end."""
        async with background(self.writer.run(), stop=self.writer.close):
            yield

    async def submit(
        self, tasks: Sequence[task_pb2.Task], *, request_id: str = "", traceparent: str = ""
    ) -> list[tuple[str, list[str]]]:
        """Accepts tasks durably; repeats of the same body change nothing. Returns their ids and their rollouts'."""
        accepted = await self.intake.accept(tasks, request_id, traceparent)
        if early := self.tombstones.of(accepted.new, time.time()):
            self._cancel(early, "cancelled before it was submitted")
        self.work.set()
        for kept in accepted.waits:
            await asyncio.shield(kept)
        return [(task.id, rollout_ids(task.id, task.rollouts)) for task in tasks]

    async def cancel(self, task_ids: Iterable[str], labels: Mapping[str, str], reason: str) -> int:
        """Cancels what has not ended of these tasks, and of those with all these labels. Returns how many rollouts."""
        unknown = set(task_ids)
        named = set(unknown)
        if labels:
            named |= {task_id for task_id, task in self.backlog.tasks.items() if matches(task.labels, labels)}
        if returning := {self.returning[task_id] for task_id in named & self.returning.keys()}:
            await asyncio.wait(returning)
        unknown -= self.backlog.tasks.keys()
        cancelled = await self._cancel_all(sorted(named - unknown), reason)
        if unknown:
            unknown -= await asyncio.to_thread(self.store.known_ids, list(unknown))
            late = unknown & self.backlog.tasks.keys()
            cancelled += self._cancel(sorted(late), reason)
            self._bury(sorted(unknown - late))
        await asyncio.shield(self.writer.gather().done())
        log.info("tasks_cancelled", tasks=len(named), rollouts=cancelled, unknown=len(unknown))
        return cancelled

    def end(self, ended: Sequence[Ended]) -> None:
        """Keeps the ends of rollouts that the scheduler has let go; consumers are told once they are on disk."""
        if not ended:
            return
        batch, now, results = self.writer.gather(), time.time(), []
        for end in ended:
            task = self.backlog.tasks[end.rollout.task_id]
            result = self._result(end, task, last=self.backlog.count(end.rollout))
            results.append(result)
            batch.end_rollout(result_row(end, result, task, now), end.body)
            self._ending.add(result.rollout_id)
        batch.then(lambda: self._kept(results, [result for result in results if batch.holds(result.number)]))
        if detailed():
            lines = [self._line_of(end) for end in ended]
            batch.then(lambda: tell("rollout_ended", lines))
        self.work.set()
        for end in ended:
            self._cut_stragglers(end)

    def end_here(
        self, rollouts: Iterable[Rollout], outcome: trajectory_pb2.Outcome.ValueType, error: message_pb2.ErrorPayload
    ) -> None:
        """Ends rollouts that no node will end."""
        rollouts = list(rollouts)
        tasks = {task_id: self.backlog.tasks[task_id].task for task_id in {rollout.task_id for rollout in rollouts}}
        self.end([ended_here(rollout, tasks[rollout.task_id], outcome, error) for rollout in rollouts])

    def has_open(self, rollout_id: str) -> bool:
        """Whether a rollout waits, runs, or has ended without being on disk yet."""
        return rollout_id in self.scheduler.rollouts or rollout_id in self._ending

    def _result(self, end: Ended, task: OpenTask, *, last: bool) -> Result:
        self.last_result += 1
        group_size = task.rollouts if last else 0
        rollout_id = end.rollout.rollout_id
        number, queue, labels = self.last_result, task.queue, task.labels
        return Result(number, task.task_id, rollout_id, queue, labels, end.outcome, end.reward, group_size, end.body)

    def _line_of(self, end: Ended) -> dict[str, object]:
        outcome = OUTCOMES.get(end.outcome, str(end.outcome))
        return ids_of(end.rollout, self.backlog.tasks[end.rollout.task_id].traceparent) | {"outcome": outcome}

    def _kept(self, decided: Sequence[Result], results: Sequence[Result]) -> None:
        """`results`: those that are on disk; the others are of tasks that the store did not take."""
        self.recent.add(results)
        self.tally.ended(results)
        self._ending.difference_update(result.rollout_id for result in decided)
        self.journal.ended(result.rollout_id for result in results)
        for result in results:
            if (task := self.backlog.tasks.get(result.task_id)) is not None:
                self.intake.left(task)
        self.events.ring()

    def _cut_stragglers(self, end: Ended) -> None:
        """Cancels what is left of a group once enough of it is usable, if its task wants that."""
        task = self.backlog.tasks[end.rollout.task_id]
        if end.outcome not in USABLE:
            return
        task.usable += 1
        stragglers = self.scheduler.stragglers(task.task_id, usable=task.usable, after_usable=task.cutoff)
        self._cancel_rollouts([self.scheduler.rollouts[rollout_id] for rollout_id in stragglers], CUT)

    async def _cancel_all(self, task_ids: Iterable[str], reason: str) -> int:
        """Cancels those of these tasks that are open; others have their turn between."""
        cancelled = since = 0
        for task_id in task_ids:
            count = self._cancel([task_id], reason)
            cancelled, since = cancelled + count, since + count
            if since >= CANCEL_AT_ONCE:
                since = 0
                await asyncio.sleep(0)
        return cancelled

    def _cancel(self, task_ids: Iterable[str], reason: str) -> int:
        scheduler = self.scheduler
        rollouts = [scheduler.rollouts[rollout_id] for task_id in task_ids for rollout_id in scheduler.group(task_id)]
        return self._cancel_rollouts(rollouts, message_pb2.ErrorPayload(reason="CANCELLED", detail=reason))

    def _cancel_rollouts(self, rollouts: Sequence[Rollout], error: message_pb2.ErrorPayload) -> int:
        if not rollouts:
            return 0
        leases = [(r.node_id, r.lease_id) for r in rollouts if r.node_id is not None and r.lease_id is not None]
        cancelled = [rollout for rollout in rollouts if self.scheduler.cancel(rollout.rollout_id) is not None]
        self.end_here(cancelled, trajectory_pb2.OUTCOME_CANCELLED, error)
        self.writer.gather().then(lambda: self.stop_leases(leases, error.detail))
        return len(cancelled)

    def _bury(self, task_ids: Sequence[str]) -> None:
        """Remembers cancels of tasks that are not known yet."""
        if task_ids:
            until = self.tombstones.add(task_ids, time.time())
            self.writer.gather().make(BuryTasks(task_ids, until))


def lease_ids() -> Iterator[str]:
    """Ids that nobody else makes: this life of the executor's, and a number."""
    life = uuid.uuid4().hex[:16]
    return (f"{life}-{number}" for number in count(1))


@contextmanager
def collector_paused() -> Iterator[None]:
    """A backlog of 100,000 is a million objects, none garbage: searching them took a third of a restart."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


def result_row(end: Ended, result: Result, task: OpenTask, ended_at: float) -> ResultRow:
    """The result as it is kept."""
    rollout = end.rollout
    return ResultRow(
        result.number,
        task.number,
        place_of(rollout),
        rollout.state.value,
        rollout.attempt,
        rollout.node_id or "",
        end.outcome,
        end.reward,
        bool(result.group_size),
        ended_at,
        len(end.body),
    )
