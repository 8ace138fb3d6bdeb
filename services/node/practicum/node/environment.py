"""A rollout's environment, through the gateway."""

from __future__ import annotations

from collections.abc import Sequence

from grpc import aio

from practicum.common.tracing import metadata, span
from practicum.node.past import Past
from practicum.node.patience import patiently
from practicum.v1 import env_gateway_pb2, env_gateway_pb2_grpc, message_pb2, task_pb2

SOURCE = message_pb2.ERROR_SOURCE_ENVIRONMENT
CLOSE_SECONDS = 10.0
LOOK_SECONDS = 10.0


class Environment:
    """One session of the gateway."""

    def __init__(self, gateway: env_gateway_pb2_grpc.EnvGatewayServiceAsyncStub, session_id: str, attempt: int) -> None:
        self._gateway = gateway
        self._session_id = session_id
        self._attempt = attempt
        self.tools: Sequence[env_gateway_pb2.Tool] = ()
        self._opened = False

    async def stands(self, past: Past) -> bool:
        """Whether an earlier attempt's environment lives, and has seen what that did and nothing else."""
        request = env_gateway_pb2.GetSessionRequest(session_id=self._session_id)
        try:
            session = (await self._gateway.GetSession(request, timeout=LOOK_SECONDS)).session
        except aio.AioRpcError:
            return False
        return session.state == env_gateway_pb2.SESSION_STATE_READY and past.fits(session.calls)

    async def open(self, spec: task_pb2.EnvironmentSpec, *, timeout: float, resume: bool = False) -> bool:
        """Opens the session; knows its tools afterwards. Returns whether it is an earlier attempt's, as was wished."""
        request = env_gateway_pb2.OpenSessionRequest(
            session_id=self._session_id, attempt=self._attempt, environment=spec, resume=resume
        )
        self._opened = True  # Also when the call fails on its way: the close sweeps what may have begun.

        async def open_session(left: float) -> env_gateway_pb2.OpenSessionResponse:
            return await self._gateway.OpenSession(request, timeout=left, wait_for_ready=True, metadata=metadata())

        answer = await patiently(open_session, timeout=timeout, source=SOURCE)
        self.tools = answer.tools
        return answer.resumed

    async def call(self, call: message_pb2.ToolCall, *, timeout: float) -> message_pb2.Observation:
        """Calls a tool and waits for its result."""
        request = env_gateway_pb2.CallToolRequest(session_id=self._session_id, attempt=self._attempt, call=call)

        async def call_tool(left: float) -> message_pb2.Observation:
            events = self._gateway.CallTool(request, timeout=left, wait_for_ready=True, metadata=metadata())
            async for event in events:
                if event.HasField("result"):
                    return event.result
            raise RuntimeError("the gateway ended a call without a result")

        facts = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name}
        with span(f"execute_tool {call.name}", facts) as told:
            observation = await patiently(call_tool, timeout=timeout, source=SOURCE)
            told.tell({"practicum.is_error": observation.is_error})
            return observation

    async def score(self, answer: str, scoring: task_pb2.Scoring, *, timeout: float) -> env_gateway_pb2.ScoreResponse:
        """Scores an answer."""
        request = env_gateway_pb2.ScoreRequest(
            session_id=self._session_id, attempt=self._attempt, answer=answer, scoring=scoring
        )

        async def score_answer(left: float) -> env_gateway_pb2.ScoreResponse:
            return await self._gateway.Score(request, timeout=left, wait_for_ready=True, metadata=metadata())

        return await patiently(score_answer, timeout=timeout, source=SOURCE)

    async def close(self) -> None:
        """Closes the session, as far as the gateway can be reached; else its idle limit does."""
        if not self._opened:
            return
        request = env_gateway_pb2.CloseSessionRequest(session_id=self._session_id, attempt=self._attempt)
        try:
            await self._gateway.CloseSession(request, timeout=CLOSE_SECONDS, metadata=metadata())
        except aio.AioRpcError:
            return
        finally:
            self._opened = False
