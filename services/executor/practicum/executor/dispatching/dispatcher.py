"""The nodes' side of the executor: gives out work, takes results, watches over leases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

import structlog

from practicum.common.errors import FailedPrecondition, NotFound, Unavailable
from practicum.executor.core import Executor
from practicum.executor.dispatching.assignments import Assignments
from practicum.executor.dispatching.frames import check_register
from practicum.executor.dispatching.link import NodeLink
from practicum.executor.dispatching.uploads import FailedAttempt, Uploads
from practicum.executor.observing.events import ids_of
from practicum.executor.scheduling.nodes import Node
from practicum.executor.scheduling.scheduler import Rollout, State
from practicum.executor.sessions.messages import Messages
from practicum.executor.stopping import stopping
from practicum.executor.tasks.outcomes import Ended
from practicum.v1 import dispatch_pb2, message_pb2, trajectory_pb2

log = structlog.get_logger(__name__)

# So that a lease which is renewed just in time, again and again, never makes the loop spin.
MIN_SLEEP_SECONDS = 0.005
MAX_LOGGED = 10
LOST = message_pb2.ErrorPayload(
    source=message_pb2.ERROR_SOURCE_NODE,
    reason="LEASE_LOST",
    detail="the node that ran the last attempt was not heard of for as long as its lease lasts",
)


OVERDUE = message_pb2.ErrorPayload(
    source=message_pb2.ERROR_SOURCE_TASK,
    reason="SCHEDULE_DEADLINE",
    detail="no node had room for it before its schedule_deadline",
)


class Dispatcher:
    """Connected nodes, and the loop that gives them work."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._scheduler = executor.scheduler
        self.links: dict[str, NodeLink] = {}
        self.uploads = Uploads(executor.scheduler.leases.__contains__)
        self.messages = Messages(executor, self.links)
        self._assignments = Assignments(executor, self.links)
        self._stopping = False
        executor.stop_leases = self.cancel

    async def run(self) -> None:
        """Gives out work as soon as there is some and a node has room, until it is cancelled."""
        while True:
            self._executor.work.clear()
            now = time.monotonic()
            self.give_up(self._scheduler.expire(now), LOST)
            self._executor.end_here(self._scheduler.overdue(now), trajectory_pb2.OUTCOME_DEADLINE, OVERDUE)
            self._hang_up(self._scheduler.forget_absent(now))
            self._assignments.give(self._scheduler.dispatch(now))
            await self._wait_for_work()

    def connect(self, register: dispatch_pb2.Register) -> NodeLink:
        """A node dialled in. An older stream of the same node ends."""
        check_register(register)
        link = NodeLink(register.node_id, register.incarnation)
        older = self.links.pop(register.node_id, None)
        if older is not None:
            older.end(superseded(register.node_id) if older.incarnation != register.incarnation else None)
            self._scheduler.disconnect(older.node_id, older.incarnation)  # Until this one is registered.
        self.links[register.node_id] = link
        if self._stopping:
            link.end(stopping())
        return link

    def register(self, register: dispatch_pb2.Register) -> Sequence[str]:
        """Tells the scheduler of a node. Returns the leases that the node has lost."""
        node = Node(
            register.node_id,
            register.incarnation,
            register.slots,
            frozenset(register.agent_kinds),
            frozenset(register.labels.items()),
        )
        registration = self._scheduler.register(node, register.held_leases, time.monotonic())
        self.give_up(registration.given_up, LOST)
        kept = [self._scheduler.leases[lease_id] for lease_id in node.leases]
        self.messages.reconnected(self.links[node.node_id], kept)
        self._executor.work.set()
        log.info("node_connected", node_id=node.node_id, slots=node.slots, agents=sorted(node.agent_kinds))
        log_lost(node.node_id, registration.lost_leases)
        return registration.lost_leases

    def disconnect(self, link: NodeLink) -> None:
        """A node's stream ended."""
        if self.links.get(link.node_id) is link:
            del self.links[link.node_id]
            self._scheduler.disconnect(link.node_id, link.incarnation)
            log.info("node_disconnected", node_id=link.node_id)

    def hear(self, link: NodeLink) -> None:
        """A node said something."""
        self._scheduler.hear(link.node_id, time.monotonic())

    def serves(self, link: NodeLink) -> bool:
        """Whether this is its node's stream still; a newer one may have taken over."""
        return self.links.get(link.node_id) is link

    def heartbeat(self, link: NodeLink, heartbeat: dispatch_pb2.Heartbeat) -> None:
        """Renews leases; a node is told which of them it has lost."""
        reported = heartbeat.running + heartbeat.queued
        lost = self._scheduler.heartbeat(link.node_id, heartbeat.lease_ids, time.monotonic(), reported=reported)
        if lost:
            log_lost(link.node_id, lost)
            link.tell(dispatch_pb2.ConnectResponse(lost_leases=lost))
        self._executor.work.set()

    async def record(self, link: NodeLink, messages: Iterable[message_pb2.Message]) -> None:
        """Journals what was said in sessions that this node runs; the rest is dropped."""
        await self.messages.record(link.node_id, messages)

    def finish(self, link: NodeLink, finished: Sequence[dispatch_pb2.Finished]) -> None:
        """Keeps results, and acks them once they are on disk. What is said of a lease that is lost is refused."""
        leases, now = self._scheduler.leases, time.monotonic()
        acked, lost, ended = [], [], []
        for item in finished:
            lease = leases.get(item.lease_id)
            if lease is None or lease.node_id != link.node_id or lease.rollout_id != item.rollout_id:
                lost.append(item.lease_id)
                continue
            acked.append(item.lease_id)
            try:
                task_id = self._scheduler.rollouts[lease.rollout_id].task_id
                trajectory, body = self.uploads.trajectory_of(item, task_id=task_id, attempt=lease.attempt)
            except FailedAttempt as failure:
                self.give_up(filter(None, [self._scheduler.fail(item.lease_id, link.node_id, now)]), failure.error)
                continue
            if (rollout := self._scheduler.finish(item.lease_id, link.node_id)) is not None:
                ended.append(Ended(rollout, trajectory.outcome, trajectory.reward, body))
        self._executor.end(ended)
        log_lost(link.node_id, lost)
        answer = dispatch_pb2.ConnectResponse(acked_leases=acked, lost_leases=lost)
        self._executor.writer.gather().then(lambda: link.tell(answer))

    def give_up(self, rollouts: Iterable[Rollout], error: message_pb2.ErrorPayload) -> None:
        """Attempts that failed: noted when they will be tried again, ended when attempts are used up."""
        dead, tally = [], self._executor.tally
        for rollout in rollouts:
            tally.failed(error.reason)
            ids = ids_of(rollout, self._executor.backlog.tasks[rollout.task_id].traceparent)
            log.info("attempt_failed", **ids, reason=error.reason, last=rollout.state is State.DEAD)
            if rollout.state is State.DEAD:
                dead.append(rollout)
            else:
                self._executor.backlog.count(rollout)
                self._assignments.release(rollout)
            self._executor.work.set()
        self._executor.end_here(dead, trajectory_pb2.OUTCOME_INFRASTRUCTURE_ERROR, error)

    def cancel(self, leases: Iterable[tuple[str, str]], reason: str) -> None:
        """Tells nodes (node id, lease id) to stop."""
        for node_id, lease_id in leases:
            if (link := self.links.get(node_id)) is not None:
                cancel = dispatch_pb2.CancelRollout(lease_id=lease_id, reason=reason)
                link.tell(dispatch_pb2.ConnectResponse(cancels=[cancel]))

    def drain(self, node_id: str) -> None:
        """Has a node take nothing new."""
        if node_id not in self._scheduler.nodes:
            raise NotFound(f"no node {node_id} is known", reason="NODE_UNKNOWN", metadata={"node_id": node_id})
        if not self._scheduler.nodes[node_id].draining:
            log.info("node_draining", node_id=node_id)
        self._scheduler.drain(node_id)
        if (link := self.links.get(node_id)) is not None:
            link.tell(dispatch_pb2.ConnectResponse(drain=True))

    def end_streams(self) -> None:
        """At shutdown: nodes are told to come back."""
        self._stopping = True
        for link in self.links.values():
            link.end(stopping())
        self.messages.end_streams(stopping())

    def _hang_up(self, nodes: Iterable[Node]) -> None:
        """Ends the streams of nodes that are silent: one that lives yet dials in again."""
        for node in nodes:
            log.warning("node_silent", node_id=node.node_id)
            if (link := self.links.pop(node.node_id, None)) is not None:
                link.end(silent(node.node_id))

    async def _wait_for_work(self) -> None:
        """Until somebody says that there is work, or something may be due that nobody will announce."""
        due = self._scheduler.next_due()
        timeout = None if due is None else max(due - time.monotonic(), MIN_SLEEP_SECONDS)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._executor.work.wait()


def log_lost(node_id: str, lease_ids: Sequence[str]) -> None:
    """A node spoke of leases that are not its own any more."""
    if lease_ids:
        log.info("leases_lost", node_id=node_id, count=len(lease_ids), lease_ids=list(lease_ids[:MAX_LOGGED]))


def superseded(node_id: str) -> FailedPrecondition:
    """Tells an older process that a newer one took over its id."""
    detail = f"another process registered as node {node_id}; give each node an id of its own"
    return FailedPrecondition(detail, reason="NODE_SUPERSEDED", metadata={"node_id": node_id})


def silent(node_id: str) -> Unavailable:
    """Tells a node that it was not heard."""
    detail = f"node {node_id} sent nothing for as long as a lease lasts; dial in again"
    return Unavailable(detail, reason="NODE_SILENT", metadata={"node_id": node_id})
