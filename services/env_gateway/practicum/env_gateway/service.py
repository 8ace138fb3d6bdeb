"""EnvGatewayService over the gateway: message → domain call → message. Calls not listed here are UNIMPLEMENTED."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from grpc import aio

from practicum.common.errors import InvalidArgument
from practicum.env_gateway.gateway import Gateway
from practicum.env_gateway.results import Progress, Result
from practicum.env_gateway.sessions import Session, Wish
from practicum.env_gateway.tools import Tool
from practicum.v1 import env_gateway_pb2 as pb
from practicum.v1 import env_gateway_pb2_grpc, message_pb2, task_pb2

Context = aio.ServicerContext[Any, Any]

# They travel in an environment variable, for which Linux takes 128 KiB.
MAX_PARAMETERS_BYTES = 64 * 1024


class EnvGatewayService(env_gateway_pb2_grpc.EnvGatewayServiceServicer):
    """The door for nodes. Each method: see the .proto."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def ListEnvironments(
        self, request: pb.ListEnvironmentsRequest, context: Context
    ) -> pb.ListEnvironmentsResponse:
        """See the .proto."""
        return pb.ListEnvironmentsResponse(
            environments=[
                pb.EnvironmentInfo(
                    name=name,
                    description=environment.description,
                    servers=[server.name for server in environment.servers],
                    isolation=environment.isolation,
                )
                for name, environment in sorted(self._gateway.environments.items())
            ]
        )

    async def OpenSession(self, request: pb.OpenSessionRequest, context: Context) -> pb.OpenSessionResponse:
        """See the .proto."""
        check_ids(request.session_id, request.attempt)
        wish = self._wish(request.environment)
        session = await self._gateway.open(request.session_id, request.attempt, wish, resume=request.resume)
        return pb.OpenSessionResponse(tools=tool_messages(session), resumed=session.resumed)

    async def GetSession(self, request: pb.GetSessionRequest, context: Context) -> pb.GetSessionResponse:
        """See the .proto."""
        return pb.GetSessionResponse(session=session_message(self._gateway.peek(request.session_id)))

    async def ListTools(self, request: pb.ListToolsRequest, context: Context) -> pb.ListToolsResponse:
        """See the .proto."""
        session = self._gateway.session(request.session_id, request.attempt)
        session.require_open()
        return pb.ListToolsResponse(tools=tool_messages(session))

    async def CallTool(self, request: pb.CallToolRequest, context: Context) -> AsyncIterator[pb.CallToolResponse]:
        """See the .proto."""
        session = self._gateway.session(request.session_id, request.attempt)
        timeout = request.timeout.seconds + request.timeout.nanos / 1e9 if request.HasField("timeout") else None
        if not request.call.call_id:
            raise InvalidArgument({"call.call_id": "is empty; choose one for each call"})
        if timeout is not None and timeout <= 0:
            raise InvalidArgument({"timeout": f"is {timeout:g} s; leave it out for the catalogue's limit"})
        call, replayed = self._gateway.call(session, request.call, timeout)
        with call.follow() as events:
            yield pb.CallToolResponse(accepted=pb.CallAccepted(replayed=replayed))
            async for event in events:
                yield call_message(event, request.call.call_id)

    async def Score(self, request: pb.ScoreRequest, context: Context) -> pb.ScoreResponse:
        """See the .proto."""
        score = self._gateway.score(
            request.session_id,
            request.attempt,
            request.answer,
            scorer=request.scoring.scorer,
            ground_truth=request.scoring.ground_truth,
        )
        return pb.ScoreResponse(reward=score.reward, parts=score.parts, reason=score.reason)

    async def KeepAlive(self, request: pb.KeepAliveRequest, context: Context) -> pb.KeepAliveResponse:
        """See the .proto."""
        self._gateway.session(request.session_id, request.attempt).require_open()
        return pb.KeepAliveResponse()

    async def CloseSession(self, request: pb.CloseSessionRequest, context: Context) -> pb.CloseSessionResponse:
        """See the .proto."""
        await self._gateway.close(request.session_id, request.attempt)
        return pb.CloseSessionResponse()

    async def GetStats(self, request: pb.GetStatsRequest, context: Context) -> pb.GetStatsResponse:
        """See the .proto."""
        return pb.GetStatsResponse(
            open_sessions=self._gateway.open_sessions,
            opened_total=self._gateway.opened_total,
            calls_total=self._gateway.calls_total,
            lost_total=self._gateway.lost_total,
            server_processes=self._gateway.launcher.alive,
        )

    def _wish(self, spec: task_pb2.EnvironmentSpec) -> Wish:
        environment = self._gateway.environment(spec.name)
        check_parameters(spec.parameters_json)
        names = [server.name for server in environment.servers]
        unknown = [name for name in spec.servers if name not in names]
        if unknown:
            raise InvalidArgument({"environment.servers": f"no server {unknown[0]!r}; there are: {', '.join(names)}"})
        return Wish(environment, spec.parameters_json, tuple(spec.servers), tuple(spec.allowed_tools), spec.hide_tools)


def check_ids(session_id: str, attempt: int) -> None:
    """Refuses what identifies no session."""
    if not session_id:
        raise InvalidArgument({"session_id": "is empty; give the rollout's id"})
    if attempt < 1:
        raise InvalidArgument({"attempt": f"is {attempt}; attempts count from 1"})


def check_parameters(text: str) -> None:
    """Refuses parameters that no environment could take."""
    if len(text.encode()) > MAX_PARAMETERS_BYTES:
        raise InvalidArgument({"environment.parameters_json": f"is longer than {MAX_PARAMETERS_BYTES} bytes"})
    try:
        good = not text or isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        good = False
    if not good or "\0" in text:
        raise InvalidArgument({"environment.parameters_json": "is not the text of a JSON object"})


def tool_messages(session: Session) -> list[pb.Tool]:
    """What the agent may call."""
    return [tool_message(tool) for tool in session.tools.values()]


def tool_message(tool: Tool) -> pb.Tool:
    """A tool."""
    return pb.Tool(name=tool.name, description=tool.description, input_schema_json=tool.input_schema_json)


def call_message(event: Progress | Result, call_id: str) -> pb.CallToolResponse:
    """An event of a call."""
    if isinstance(event, Progress):
        progress = pb.CallProgress(progress=event.progress, total=event.total, message=event.message)
        return pb.CallToolResponse(progress=progress)
    result = message_pb2.Observation(
        call_id=call_id,
        text=event.text,
        is_error=event.is_error,
        structured_json=event.structured_json,
        truncated=event.truncated,
        full_size_bytes=event.full_size_bytes,
    )
    return pb.CallToolResponse(result=result)


def session_message(session: Session) -> pb.EnvSession:
    """How a session stands."""
    message = pb.EnvSession(
        session_id=session.id,
        attempt=session.attempt,
        state=pb.SessionState.ValueType(session.state.value),
        environment=session.wish.environment.name,
        calls=session.call_count,
        lost_reason=session.lost_reason,
    )
    message.opened_at.FromNanoseconds(int(session.opened_at * 1e9))
    return message
