"""One attempt at a rollout: open the environment, run the agent, score, close, and tell what came of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from grpc import aio

from practicum.node.agent import AgentFunction, is_resumable
from practicum.node.deadline import Deadline
from practicum.node.environment import Environment
from practicum.node.failures import InfrastructureError, LimitReached, place_of
from practicum.node.model import Model
from practicum.node.past import Past
from practicum.node.post import Post
from practicum.node.recorder import Recorder
from practicum.node.resume import resume
from practicum.node.session import AGENT_ID, RolloutSession
from practicum.node.trajectory import Ending, make_trajectory
from practicum.v1 import (
    dispatch_pb2,
    env_gateway_pb2_grpc,
    inference_pb2_grpc,
    message_pb2,
    task_pb2,
    trajectory_pb2,
)

log = structlog.get_logger(__name__)

SCORE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Services:
    """What rollouts call: the gateway and the proxy."""

    gateway: env_gateway_pb2_grpc.EnvGatewayServiceAsyncStub
    proxy: inference_pb2_grpc.InferenceServiceAsyncStub

    @classmethod
    def over(cls, gateway: aio.Channel, proxy: aio.Channel) -> Services:
        """Over their channels."""
        return cls(env_gateway_pb2_grpc.EnvGatewayServiceStub(gateway), inference_pb2_grpc.InferenceServiceStub(proxy))


class RolloutRun:
    """One attempt."""

    def __init__(
        self,
        assignment: dispatch_pb2.Assignment,
        *,
        agents: Mapping[str, AgentFunction],
        services: Services,
        node_id: str,
        tell: Callable[[message_pb2.Message], None],
    ) -> None:
        self._assignment = assignment
        self._task = assignment.task
        self._agents = agents
        self._node_id = node_id
        session_id, attempt = assignment.rollout_id, assignment.attempt
        self._environment = Environment(services.gateway, session_id, attempt)
        self._model = Model(services.proxy, session_id, attempt)
        self._recorder = Recorder(session_id, attempt, tell)
        self._post = Post(self._recorder, [AGENT_ID])
        self._deadline = Deadline.of(self._task.limits)
        self._earlier: Sequence[trajectory_pb2.TokenGraph] = ()
        self._handed_over = False

    def deliver(self, message: message_pb2.Message) -> None:
        """Something was said in the session."""
        self._post.deliver(message)

    def hand_over(self) -> None:
        """The node stops: the environment and the tokens are left to the next attempt, if the agent can go on."""
        agent = self._agents.get(self._task.agent.kind)
        self._handed_over = agent is not None and is_resumable(agent)

    async def run(self) -> trajectory_pb2.Trajectory:
        """Returns the trajectory; raises InfrastructureError when another attempt should be made."""
        try:
            ending = await self._ending()
            graph = await self._model.close()
            graphs = self._earlier if graph is None else [*self._earlier, graph]
            return make_trajectory(self._assignment, self._recorder, ending, graphs=graphs, node_id=self._node_id)
        except InfrastructureError as error:
            self._recorder.say("error", self._node_id, error=error.error)
            if not error.final:
                raise
            ending = Ending(trajectory_pb2.OUTCOME_INFRASTRUCTURE_ERROR, error=error.error)
            return make_trajectory(self._assignment, self._recorder, ending, graphs=[], node_id=self._node_id)
        finally:
            if not self._handed_over:
                await asyncio.shield(asyncio.gather(self._environment.close(), self._model.discard()))

    async def _ending(self) -> Ending:
        """How the agent ended, scored."""
        agent = self._agents[self._task.agent.kind]
        past = await self._resume() if is_resumable(agent) else None
        if past is None:
            await self._begin()
        session = RolloutSession(
            agent_task(self._assignment),
            environment=self._environment,
            model=self._model,
            recorder=self._recorder,
            post=self._post,
            deadline=self._deadline,
            past=past,
        )
        ending = await self._run_agent(agent, session)
        self._post.close()
        ending.tools_json = session.tools_json
        if ending.outcome in (trajectory_pb2.OUTCOME_FINISHED, trajectory_pb2.OUTCOME_MAX_STEPS):
            await self._score(ending)
        return ending

    async def _begin(self) -> None:
        """The attempt begins anew."""
        self._recorder.say("task", "user", task=message_pb2.TaskPayload(instruction=self._task.instruction))
        if self._task.HasField("environment"):
            await self._environment.open(self._task.environment, timeout=self._deadline.for_step())

    async def _resume(self) -> Past | None:
        """What the attempt goes on from; None when it begins anew."""
        resumed = await resume(
            self._assignment, environment=self._environment, model=self._model, deadline=self._deadline
        )
        if resumed is None:
            return None
        self._earlier = resumed.graphs
        steps = len(resumed.past.steps)
        self._recorder.say("resumed", "system", text=f"goes on behind step {steps} of an earlier attempt")
        log.info("attempt_resumed", rollout_id=self._assignment.rollout_id, steps=steps)
        return resumed.past

    async def _run_agent(self, agent: AgentFunction, session: RolloutSession) -> Ending:
        clock = asyncio.timeout(self._deadline.left())
        try:
            async with clock:
                await session.catch_up()
                return Ending(trajectory_pb2.OUTCOME_FINISHED, answer=await agent(session) or "")
        except LimitReached:
            last = self._recorder.steps[-1].action.text if self._recorder.steps else ""
            return Ending(trajectory_pb2.OUTCOME_MAX_STEPS, answer=last)
        except InfrastructureError as error:
            if self._deadline.left() > 0:
                raise
            return Ending(trajectory_pb2.OUTCOME_DEADLINE, error=error.error)
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise  # This rollout was; otherwise something that the agent waited for.
            return self._agent_failed(error)
        except Exception as error:  # noqa: BLE001 - whatever an agent raises is the agent's fault, not the node's
            if clock.expired():
                return Ending(trajectory_pb2.OUTCOME_DEADLINE)
            return self._agent_failed(error)

    def _agent_failed(self, error: BaseException) -> Ending:
        kind, place = type(error).__name__, place_of(error)
        log.warning("agent_failed", error=kind, at=place)
        detail = f"{error} ({place})"[:1000]
        payload = message_pb2.ErrorPayload(source=message_pb2.ERROR_SOURCE_AGENT, reason=kind, detail=detail)
        self._recorder.say("error", self._task.agent.kind, error=payload)
        return Ending(trajectory_pb2.OUTCOME_AGENT_ERROR, error=payload)

    async def _score(self, ending: Ending) -> None:
        if self._task.HasField("scoring"):
            score = await self._environment.score(ending.answer, self._task.scoring, timeout=SCORE_SECONDS)
            ending.reward, ending.reward_parts = score.reward, dict(score.parts)


def agent_task(assignment: dispatch_pb2.Assignment) -> task_pb2.AgentTask:
    """The task as its agent sees it: without scoring, environment parameters, labels or metadata."""
    return task_pb2.AgentTask(
        rollout_id=assignment.rollout_id,
        task_id=assignment.task.id,
        attempt=assignment.attempt,
        instruction=assignment.task.instruction,
        agent=assignment.task.agent,
        limits=assignment.task.limits,
    )
