"""Runs the rollouts that a node was given, each as a task of its own."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping

import structlog

from practicum.node.agent import AgentFunction
from practicum.node.connection import Connection, Introduction
from practicum.node.failures import InfrastructureError
from practicum.node.outbox import Outbox
from practicum.node.rollout import RolloutRun, Services
from practicum.v1 import dispatch_pb2, message_pb2

log = structlog.get_logger(__name__)

MAX_INLINE_BYTES = 256 * 1024


class Worker:
    """The rollouts of one node."""

    def __init__(self, introduction: Introduction, agents: Mapping[str, AgentFunction], services: Services) -> None:
        self._introduction = introduction
        self._agents = agents
        self._services = services
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.outbox = Outbox()
        self.connection: Connection | None = None

    @property
    def running(self) -> int:
        """Rollouts at work."""
        return len(self._tasks)

    def assign(self, assignment: dispatch_pb2.Assignment) -> None:
        """Runs a rollout."""
        lease_id = assignment.lease_id
        self.outbox.hold(lease_id)
        task = asyncio.create_task(self._run(assignment), name=assignment.rollout_id)
        self._tasks[lease_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(lease_id, None))

    def stop(self, lease_id: str) -> None:
        """Stops a rollout, if it is at work, and says nothing more of it."""
        self.outbox.forget(lease_id)
        if (task := self._tasks.get(lease_id)) is not None:
            task.cancel()

    async def finish(self, seconds: float) -> None:
        """Lets what runs go on for some seconds; gives the rest back, so that other nodes take it at once."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=seconds)
        unfinished = dict(self._tasks)
        for task in unfinished.values():
            task.cancel()
        await asyncio.gather(*unfinished.values(), return_exceptions=True)
        error = message_pb2.ErrorPayload(
            source=message_pb2.ERROR_SOURCE_NODE, reason="NODE_STOPPED", detail="the node was stopped"
        )
        for lease_id, task in unfinished.items():
            self.outbox.finish(
                dispatch_pb2.Finished(lease_id=lease_id, rollout_id=task.get_name(), infrastructure_error=error)
            )

    async def _run(self, assignment: dispatch_pb2.Assignment) -> None:
        finished = dispatch_pb2.Finished(lease_id=assignment.lease_id, rollout_id=assignment.rollout_id)
        run = RolloutRun(
            assignment,
            agent=self._agents[assignment.task.agent.kind],
            services=self._services,
            node_id=self._introduction.node_id,
            tell=lambda message: self.outbox.say(assignment.lease_id, message),
        )
        try:
            body = (await run.run()).SerializeToString()
        except InfrastructureError as error:
            log.warning("attempt_failed", rollout_id=assignment.rollout_id, reason=error.error.reason)
            finished.infrastructure_error.CopyFrom(error.error)
        except Exception as error:
            log.exception("node_failed", rollout_id=assignment.rollout_id)
            finished.infrastructure_error.CopyFrom(fault(error))
        else:
            await self._attach(finished, body)
        self.outbox.finish(finished)

    async def _attach(self, finished: dispatch_pb2.Finished, body: bytes) -> None:
        """Puts a trajectory into its result, or uploads it first."""
        if len(body) <= MAX_INLINE_BYTES or self.connection is None:
            finished.trajectory = body
            return
        finished.trajectory_digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        await self.connection.upload(finished.lease_id, finished.trajectory_digest, body)


def fault(error: Exception) -> message_pb2.ErrorPayload:
    """An error of this node's own."""
    return message_pb2.ErrorPayload(
        source=message_pb2.ERROR_SOURCE_NODE, reason=type(error).__name__, detail=str(error)[:1000]
    )
