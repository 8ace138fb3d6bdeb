"""A hot standby: waits for the leader's lease to end, and knows meanwhile who leads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import grpc
import structlog
from grpc import aio
from sqlalchemy.exc import SQLAlchemyError

from practicum.common.errors import Unavailable
from practicum.common.server import ServerConfig, serve, wait_for_signal
from practicum.executor.leadership.leading import Leadership
from practicum.executor.leadership.lease import LeaderLease
from practicum.executor.observing.metrics import standby_metrics

log = structlog.get_logger(__name__)

# A clean hand-over takes up to so long; that a dead leader's lease ends is seen at that moment.
POLL_SECONDS = 0.25
MIN_POLL_SECONDS = 0.01
RETRY_SECONDS = 0.5
GRACE_SECONDS = 0.25
"""No call takes long; without any grace their callers were told CANCELLED."""


class Standby:
    """A candidate while it does not lead."""

    def __init__(self, lease: LeaderLease) -> None:
        self._lease = lease
        self._prepared = False
        self._trouble = ""
        self.leader = ""
        """The address of who leads; empty when nobody does, or it can't be known now."""

    async def wait(self) -> Leadership:
        """Returns when this executor leads. While the database can't be reached, nobody begins to."""
        while True:
            asked_at = time.monotonic()
            try:
                epoch, seconds_left = await asyncio.to_thread(self._look)
                self._trouble = ""
            except SQLAlchemyError as error:
                epoch, seconds_left = None, POLL_SECONDS
                self._tell(error)
            if epoch is not None:
                log.info("leadership_acquired", epoch=epoch)
                return Leadership(self._lease, epoch, acquired_at=asked_at)
            await asyncio.sleep(min(max(seconds_left, MIN_POLL_SECONDS), POLL_SECONDS))

    def _look(self) -> tuple[int | None, float]:
        """The new epoch if this executor leads now, and how long the present lease holds."""
        if not self._prepared:
            self._lease.prepare()
            self._prepared = True
        epoch = self._lease.acquire()
        leader = self._lease.leader()
        self.leader = leader.address if leader is not None else ""
        return epoch, leader.seconds_left if leader is not None else 0.0

    def _tell(self, error: SQLAlchemyError) -> None:
        """Says once what is wrong: it may last."""
        self.leader = ""
        trouble = str(error.__cause__ or error)
        if trouble != self._trouble:
            log.error("database_failed", reason=trouble)
        self._trouble = trouble


class Elsewhere(grpc.GenericRpcHandler):
    """Answers every call of the services with where the leader is."""

    def __init__(self, standby: Standby, services: Sequence[str]) -> None:
        self._standby = standby
        self._prefixes = tuple(f"/{service}/" for service in services)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """A handler for calls of any kind: on the wire each is a stream of messages, and none is looked at."""
        if not handler_call_details.method.startswith(self._prefixes):
            return None
        return grpc.stream_stream_rpc_method_handler(self._refuse)

    async def _refuse(self, requests: object, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[bytes]:
        raise not_leader(self._standby.leader)
        yield b""


async def stand_by(config: ServerConfig, lease: LeaderLease, services: Sequence[str]) -> Leadership | None:
    """Serves as a standby until this executor leads; None when it was told to stop."""
    standby, serving = Standby(lease), asyncio.Event()

    async def wait_to_lead() -> Leadership:
        await serving.wait()  # A candidate's place is its own only then.
        return await standby.wait()

    async def until() -> None:
        serving.set()
        await asyncio.wait((leads, stopped), return_when=asyncio.FIRST_COMPLETED)

    leads, stopped = asyncio.create_task(wait_to_lead()), asyncio.create_task(wait_for_signal())
    try:
        await serve(
            replace(config, grace_seconds=GRACE_SECONDS),
            services=services,
            register=lambda server: server.add_generic_rpc_handlers((Elsewhere(standby, services),)),
            until=until,
            ready=False,
            sources=[standby_metrics],
        )
    finally:
        for task in (leads, stopped):
            task.cancel()
        await asyncio.gather(leads, stopped, return_exceptions=True)
    leadership = None if leads.cancelled() else leads.result()
    if leadership is None or stopped.cancelled():
        return leadership
    await asyncio.to_thread(leadership.release)
    return None


def not_leader(leader: str) -> Unavailable:
    """What callers of a standby are told."""
    detail = f"this executor is a standby; call the leader, {leader}" if leader else "no executor leads just now"
    metadata = {"leader": leader} if leader else {}
    return Unavailable(detail, reason="NOT_LEADER", metadata=metadata, retry_after_seconds=RETRY_SECONDS)
