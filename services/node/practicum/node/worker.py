"""Runs the rollouts that a node was given, each as a task of its own."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping

import structlog

from practicum.node.agent import AgentFunction
from practicum.node.connection import Connection, Introduction
from practicum.node.failures import InfrastructureError, place_of
from practicum.node.outbox import Outbox, Upload
from practicum.node.rollout import RolloutRun, Services
from practicum.node.scope import rollout_scope
from practicum.v1 import dispatch_pb2, message_pb2, trajectory_pb2

log = structlog.get_logger(__name__)

MAX_INLINE_BYTES = 256 * 1024


class Worker:
    """The rollouts of one node."""

    def __init__(self, introduction: Introduction, agents: Mapping[str, AgentFunction], services: Services) -> None:
        self._introduction = introduction
        self._agents = agents
        self._services = services
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._runs: dict[str, RolloutRun] = {}
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
        run = self._runs[assignment.rollout_id] = RolloutRun(
            assignment,
            agents=self._agents,
            services=self._services,
            node_id=self._introduction.node_id,
            tell=lambda message: self.outbox.say(lease_id, message),
        )
        task = asyncio.create_task(self._run(assignment, run), name=assignment.rollout_id)
        self._tasks[lease_id] = task
        task.add_done_callback(lambda task: self._ended(lease_id, run, task))

    def stop(self, lease_id: str) -> None:
        """Stops a rollout, if it is at work, and says nothing more of it."""
        self.outbox.forget(lease_id)
        if (task := self._tasks.get(lease_id)) is not None:
            log.info("rollout_stopped", rollout_id=task.get_name(), lease_id=lease_id)
            task.cancel()

    def deliver(self, message: message_pb2.Message) -> None:
        """Something was said in a session; dropped when nothing of it is at work."""
        if (run := self._runs.get(message.session_id)) is not None:
            run.deliver(message)

    async def finish(self, seconds: float) -> None:
        """Lets what runs go on for some seconds; gives the rest back, so that other nodes take it at once."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=seconds)
        unfinished = list(self._tasks.values())
        for run in self._runs.values():
            run.hand_over()
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

    def _ended(self, lease_id: str, run: RolloutRun, task: asyncio.Task[None]) -> None:
        """Whatever ended a rollout, its lease is not held without a result: nobody would ever run it again."""
        del self._tasks[lease_id]
        if self._runs.get(task.get_name()) is run:  # Else a further attempt runs here.
            del self._runs[task.get_name()]
        if not self.outbox.owes(lease_id):
            return
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("node_failed", rollout_id=task.get_name(), error=type(error).__name__, at=place_of(error))
        self.outbox.finish(
            dispatch_pb2.Finished(
                lease_id=lease_id, rollout_id=task.get_name(), infrastructure_error=fault(error or NodeStopped())
            )
        )

    async def _run(self, assignment: dispatch_pb2.Assignment, run: RolloutRun) -> None:
        """One attempt, with its ids in all that is logged."""
        with rollout_scope(assignment, self._introduction.node_id) as span:
            log.debug("rollout_started")
            trajectory = await self._attempt(assignment, run)
            if trajectory is not None:
                outcome = trajectory_pb2.Outcome.Name(trajectory.outcome).removeprefix("OUTCOME_").lower()
                span.tell({"practicum.outcome": outcome, "practicum.reward": trajectory.reward})
                steps, tokens = len(trajectory.steps), trajectory.token_count
                log.info("rollout_finished", outcome=outcome, reward=trajectory.reward, steps=steps, tokens=tokens)

    async def _attempt(self, assignment: dispatch_pb2.Assignment, run: RolloutRun) -> trajectory_pb2.Trajectory | None:
        """Brings back the trajectory, or why there is none."""
        finished = dispatch_pb2.Finished(lease_id=assignment.lease_id, rollout_id=assignment.rollout_id)
        trajectory = None
        try:
            trajectory = await run.run()
        except InfrastructureError as error:
            log.warning("attempt_failed", reason=error.error.reason)
            finished.infrastructure_error.CopyFrom(error.error)
        else:
            await self._attach(finished, trajectory.SerializeToString())
        self.outbox.finish(finished)
        return trajectory

    async def _attach(self, finished: dispatch_pb2.Finished, body: bytes) -> None:
        """Puts a trajectory into its result, or uploads it first."""
        if len(body) <= MAX_INLINE_BYTES or self.connection is None:
            finished.trajectory = body
            return
        upload = Upload(finished.lease_id, f"sha256:{hashlib.sha256(body).hexdigest()}", body)
        finished.trajectory_digest = upload.digest
        self.outbox.keep(upload)  # First: the stream may break after the upload, and then it comes again.
        await self.connection.upload(upload)


class NodeStopped(Exception):
    """The node was stopped while the rollout was at work."""


def fault(error: BaseException) -> message_pb2.ErrorPayload:
    """An error of this node's own, by its type alone: its text may quote what nobody else should read."""
    return message_pb2.ErrorPayload(
        source=message_pb2.ERROR_SOURCE_NODE, reason=type(error).__name__, detail=type(error).__doc__ or ""
    )
