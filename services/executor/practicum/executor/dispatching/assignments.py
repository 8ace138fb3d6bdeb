"""Gives rollouts to nodes: each attempt is on disk before its node hears of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence

from practicum.executor.core import Executor
from practicum.executor.dispatching.link import NodeLink
from practicum.executor.observing.events import detailed, ids_of, tell
from practicum.executor.scheduling.scheduler import Lease, Rollout
from practicum.executor.sessions.messages import tell_all
from practicum.executor.store.rows import AttemptRow
from practicum.executor.tasks.backlog import place_of
from practicum.v1 import message_pb2

MAX_JOURNAL_BYTES = 2 * 1024 * 1024
OVERHEAD_BYTES = 256


class Assignments:
    """Attempts on their way to nodes. Numbers of attempts never repeat, and leases outlive a restart."""

    def __init__(self, executor: Executor, links: Mapping[str, NodeLink]) -> None:
        self._executor = executor
        self._scheduler = executor.scheduler
        self._links = links
        self._journal = executor.journal
        self._since = time.monotonic()
        self._telling: set[asyncio.Task[None]] = set()

    def give(self, leases: Sequence[Lease]) -> None:
        """Notes attempts, and tells their nodes once that is on disk."""
        if not leases:
            return
        batch, scheduler, tally = self._executor.writer.gather(), self._scheduler, self._executor.tally
        first: list[float] = []
        for lease in leases:
            rollout, node = scheduler.rollouts[lease.rollout_id], scheduler.nodes[lease.node_id]
            number, place = self._executor.backlog.tasks[rollout.task_id].number, place_of(rollout)
            holder = (lease.lease_id, lease.node_id, node.incarnation)
            batch.put_attempt(AttemptRow(number, place, lease.attempt, rollout.failures, *holder))
            if lease.attempt == 1:
                first.append(rollout.queued_at)
        tally.attempts += len(leases)
        batch.then(lambda: self._tell(leases))
        batch.then(lambda: tally.dispatched(first))
        if detailed():
            rollouts, tasks = [scheduler.rollouts[lease.rollout_id] for lease in leases], self._executor.backlog.tasks
            lines = [ids_of(rollout, tasks[rollout.task_id].traceparent) for rollout in rollouts]
            batch.then(lambda: tell("attempt_assigned", lines))

    def release(self, rollout: Rollout) -> None:
        """Notes that a rollout waits again: after a restart no node is believed to run it."""
        task = self._executor.backlog.tasks[rollout.task_id]
        row = AttemptRow(task.number, place_of(rollout), rollout.attempt, rollout.failures)
        self._executor.writer.gather().put_attempt(row)
        if (tail := self._journal.open_tail(rollout.rollout_id)) is not None:
            tail.told = None

    def _tell(self, leases: Sequence[Lease]) -> None:
        quiet, unsure, later = [], [], []
        for lease in leases:
            if not self._stands(lease):
                continue
            if lease.attempt > 1 or self._journal.open_tail(lease.rollout_id) is not None:
                later.append(lease)
            elif self._scheduler.rollouts[lease.rollout_id].queued_at <= self._since:
                unsure.append(lease)
            else:
                quiet.append(lease)
        self._tell_quiet(quiet)
        for lease in later:
            self._begin(self._tell_with_journal(lease))
        if unsure:
            self._begin(self._tell_unsure(unsure))

    def _tell_quiet(self, leases: Sequence[Lease]) -> None:
        """First attempts at what nobody has said anything in."""
        for lease in leases:
            link = self._links[lease.node_id]
            self._journal.begin(lease.rollout_id, link)
            self._assign(link, lease, [])

    async def _tell_unsure(self, leases: Sequence[Lease]) -> None:
        """First attempts at what waited over a restart: something may have been said meanwhile."""
        spoken = await asyncio.to_thread(self._executor.store.spoken, [lease.rollout_id for lease in leases])
        standing = [lease for lease in leases if self._stands(lease)]
        quiet = {
            lease.lease_id
            for lease in standing
            if lease.rollout_id not in spoken and self._journal.open_tail(lease.rollout_id) is None
        }
        self._tell_quiet([lease for lease in standing if lease.lease_id in quiet])
        for lease in standing:
            if lease.lease_id not in quiet:
                self._begin(self._tell_with_journal(lease))

    async def _tell_with_journal(self, lease: Lease) -> None:
        """The node is told with its assignment what others said before, and a further attempt the whole journal."""
        journal: Sequence[message_pb2.Message] = []
        if lease.attempt > 1:
            journal = await self._journal.read(lease.rollout_id, max_bytes=MAX_JOURNAL_BYTES)
        tail, said = await self._journal.said(lease.rollout_id)
        if tail is not None and self._stands(lease):
            link = self._links[lease.node_id]
            self._assign(link, lease, journal)
            tell_all(link, tail, said)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    def _stands(self, lease: Lease) -> bool:
        """Whether a lease was not lost meanwhile, and its node can be told of it."""
        return lease.node_id in self._links and lease.lease_id in self._scheduler.leases

    def _assign(self, link: NodeLink, lease: Lease, journal: Sequence[message_pb2.Message]) -> None:
        """Adds to what the node is told next. The task is parsed in its place: it isn't copied."""
        task = self._executor.backlog.tasks[self._scheduler.rollouts[lease.rollout_id].task_id]
        size = len(task.body) + sum(message.ByteSize() for message in journal) + OVERHEAD_BYTES
        assignment = link.room(size).assignments.add(
            lease_id=lease.lease_id,
            rollout_id=lease.rollout_id,
            group_id=task.task_id,
            attempt=lease.attempt,
            journal=journal,
            traceparent=task.traceparent,
        )
        assignment.task.MergeFromString(task.body)
