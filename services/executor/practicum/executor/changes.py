"""What may be changed in the store. Many changes share one transaction; each tells what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import bindparam, delete, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as upsert
from sqlalchemy.engine import Connection

from practicum.executor.tables import CONSUMERS, EVENTS, JOURNAL, ROLLOUTS, TASKS, TOMBSTONES
from practicum.v1 import executor_pb2

TOMBSTONE_SECONDS = 3600.0


class Change(Protocol):
    """A change of the store; runs inside a transaction, in the writer's thread."""

    def apply(self, connection: Connection) -> object:
        """Makes the change. The answer goes to whoever asked for it."""


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to be kept, serialized, with what it is selected by."""

    task_id: str
    queue: str
    labels_json: str
    body: bytes
    rollout_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class Accepted:
    """What came of AddTasks. With `conflict`, the id of a task known with another body, nothing was taken."""

    new: frozenset[str] = frozenset()
    cancelled_before: frozenset[str] = frozenset()
    conflict: str = ""


@dataclass(frozen=True, slots=True)
class AddTasks:
    """Keeps those tasks of a request that are not known yet, or none of it."""

    tasks: Sequence[NewTask]

    def apply(self, connection: Connection) -> Accepted:
        """Checks and inserts in one transaction, so that two requests never see different tasks."""
        ids = [task.task_id for task in self.tasks]
        rows = connection.execute(select(TASKS.c.task_id, TASKS.c.body).where(TASKS.c.task_id.in_(ids)))
        known = {row.task_id: row.body for row in rows}
        new: dict[str, NewTask] = {}
        for task in self.tasks:
            before = known.get(task.task_id) or (new[task.task_id].body if task.task_id in new else None)
            if before is None:
                new[task.task_id] = task
            elif before != task.body:
                return Accepted(conflict=task.task_id)
        if new:
            self._insert(connection, list(new.values()))
        query = select(TOMBSTONES.c.task_id).where(TOMBSTONES.c.task_id.in_(new), TOMBSTONES.c.expires_at > time.time())
        return Accepted(frozenset(new), frozenset(connection.execute(query).scalars()))

    @staticmethod
    def _insert(connection: Connection, new: Sequence[NewTask]) -> None:
        now = time.time()
        tasks = [
            {"task_id": t.task_id, "queue": t.queue, "labels_json": t.labels_json, "body": t.body, "submitted_at": now}
            for t in new
        ]
        blank = {"state": "open", "attempt": 0, "outcome": 0, "lease_id": "", "node_id": "", "incarnation": ""}
        rollouts = [{"rollout_id": r, "task_id": t.task_id, **blank} for t in new for r in t.rollout_ids]
        connection.execute(insert(TASKS), tasks)
        connection.execute(insert(ROLLOUTS), rollouts)


@dataclass(frozen=True, slots=True)
class StartedAttempt:
    """An attempt that a node was given."""

    rollout_id: str
    attempt: int
    lease_id: str
    node_id: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class StartAttempts:
    """Notes attempts before nodes hear of them: numbers never repeat, and leases outlive a restart."""

    attempts: Sequence[StartedAttempt]

    def apply(self, connection: Connection) -> None:
        """Updates open rollouts."""
        statement = (
            update(ROLLOUTS)
            .where(ROLLOUTS.c.rollout_id == bindparam("of"), ROLLOUTS.c.state == "open")
            .values(
                attempt=bindparam("number_of"),
                lease_id=bindparam("lease"),
                node_id=bindparam("node"),
                incarnation=bindparam("life"),
            )
        )
        rows = [
            {"of": a.rollout_id, "number_of": a.attempt, "lease": a.lease_id, "node": a.node_id, "life": a.incarnation}
            for a in self.attempts
        ]
        connection.execute(statement, rows)


@dataclass(frozen=True, slots=True)
class ReleaseAttempts:
    """Notes that these rollouts wait again: after a restart no node is believed to run them."""

    rollout_ids: Sequence[str]

    def apply(self, connection: Connection) -> None:
        """Clears their leases."""
        statement = update(ROLLOUTS).where(ROLLOUTS.c.rollout_id.in_(self.rollout_ids), ROLLOUTS.c.state == "open")
        connection.execute(statement.values(lease_id="", node_id="", incarnation=""))


@dataclass(frozen=True, slots=True)
class EndedRollout:
    """A rollout that ended, with its serialized Trajectory."""

    rollout_id: str
    task_id: str
    state: str
    outcome: int
    reward: float
    body: bytes


@dataclass(frozen=True, slots=True)
class EndRollouts:
    """Keeps results, and closes the groups that they complete."""

    rollouts: Sequence[EndedRollout]

    def apply(self, connection: Connection) -> list[str]:
        """Returns the ids that had not ended before: one trajectory for each rollout."""
        kept = [rollout for rollout in self.rollouts if self._end(connection, rollout)]
        if kept:
            columns = ("task_id", "rollout_id", "outcome", "reward", "body")
            connection.execute(insert(EVENTS), [{c: getattr(r, c) for c in columns} for r in kept])
        for task_id in dict.fromkeys(rollout.task_id for rollout in kept):
            self._close_group(connection, task_id)
        return [rollout.rollout_id for rollout in kept]

    @staticmethod
    def _end(connection: Connection, rollout: EndedRollout) -> bool:
        statement = update(ROLLOUTS).where(ROLLOUTS.c.rollout_id == rollout.rollout_id, ROLLOUTS.c.state == "open")
        values = {"state": rollout.state, "outcome": rollout.outcome, "lease_id": ""}
        return bool(connection.execute(statement.values(**values)).rowcount)

    @staticmethod
    def _close_group(connection: Connection, task_id: str) -> None:
        of_group = select(ROLLOUTS.c.rollout_id).where(ROLLOUTS.c.task_id == task_id)
        if connection.execute(of_group.where(ROLLOUTS.c.state == "open").limit(1)).first() is not None:
            return
        ids = connection.execute(of_group.order_by(ROLLOUTS.c.number)).scalars()
        body = executor_pb2.GroupComplete(group_id=task_id, rollout_ids=ids).SerializeToString()
        connection.execute(insert(EVENTS).values(task_id=task_id, outcome=0, reward=0.0, body=body))


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A Message at its place in a session's journal, serialized."""

    session_id: str
    sequence: int
    message_id: str
    body: bytes


@dataclass(frozen=True, slots=True)
class AppendMessages:
    """Adds to journals."""

    entries: Sequence[JournalEntry]

    def apply(self, connection: Connection) -> None:
        """Repeats were dropped before sequences were given."""
        columns = ("session_id", "sequence", "message_id", "body")
        connection.execute(insert(JOURNAL), [{c: getattr(e, c) for c in columns} for e in self.entries])


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer of trajectories: what it wants, serialized, and up to where it acked."""

    name: str
    filter: bytes
    cursor: int


@dataclass(frozen=True, slots=True)
class OpenConsumer:
    """Keeps a consumer unless its name is known; `cursor` −1 means the present end."""

    consumer: Consumer

    def apply(self, connection: Connection) -> Consumer:
        """Returns the consumer as it is kept."""
        wanted = self.consumer
        query = select(CONSUMERS).where(CONSUMERS.c.name == wanted.name)
        known = connection.execute(query).first()
        if known is not None:
            return Consumer(known.name, known.filter, known.cursor)
        end = connection.execute(select(func.coalesce(func.max(EVENTS.c.cursor), 0))).scalar_one()
        kept = Consumer(wanted.name, wanted.filter, end if wanted.cursor < 0 else wanted.cursor)
        connection.execute(insert(CONSUMERS).values(name=kept.name, filter=kept.filter, cursor=kept.cursor))
        return kept


@dataclass(frozen=True, slots=True)
class AckConsumer:
    """Moves a consumer's position on."""

    name: str
    cursor: int

    def apply(self, connection: Connection) -> None:
        """Never moves it back."""
        ahead = CONSUMERS.c.cursor < self.cursor
        connection.execute(update(CONSUMERS).where(CONSUMERS.c.name == self.name, ahead).values(cursor=self.cursor))


@dataclass(frozen=True, slots=True)
class ForgetConsumer:
    """Drops a consumer."""

    name: str

    def apply(self, connection: Connection) -> None:
        """Idempotent."""
        connection.execute(delete(CONSUMERS).where(CONSUMERS.c.name == self.name))


@dataclass(frozen=True, slots=True)
class BuryTasks:
    """Remembers for an hour that tasks which are not known yet were cancelled."""

    task_ids: Sequence[str]

    def apply(self, connection: Connection) -> None:
        """A later cancel prolongs the hour."""
        until = time.time() + TOMBSTONE_SECONDS
        connection.execute(delete(TOMBSTONES).where(TOMBSTONES.c.expires_at < time.time()))
        statement = upsert(TOMBSTONES).on_conflict_do_update(["task_id"], set_={"expires_at": until})
        connection.execute(statement, [{"task_id": task_id, "expires_at": until} for task_id in self.task_ids])
