"""A gateway and a proxy in one, for tests of what a node sends: one tool, one model that calls it once and answers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from practicum.v1 import (
    env_gateway_pb2,
    env_gateway_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    message_pb2,
    trajectory_pb2,
)

TOOL = "echo__say"


@dataclass
class Heard:
    """The metadata of every call, in order."""

    calls: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def note(self, method: str, context: Any) -> None:
        """One call."""
        self.calls.append((method, dict(context.invocation_metadata())))

    def traceparents(self, method: str) -> list[str]:
        """Of the calls of one method."""
        return [metadata.get("traceparent", "") for name, metadata in self.calls if name == method]


class Gateway(env_gateway_pb2_grpc.EnvGatewayServiceServicer):
    """Says back what it is told."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard

    def OpenSession(self, request: Any, context: Any) -> Any:
        self._heard.note("gateway.OpenSession", context)
        return env_gateway_pb2.OpenSessionResponse(tools=[env_gateway_pb2.Tool(name=TOOL, input_schema_json="{}")])

    def CallTool(self, request: Any, context: Any) -> Iterator[Any]:
        self._heard.note("gateway.CallTool", context)
        yield env_gateway_pb2.CallToolResponse(
            result=message_pb2.Observation(call_id=request.call.call_id, text=request.call.arguments_json)
        )

    def Score(self, request: Any, context: Any) -> Any:
        self._heard.note("gateway.Score", context)
        return env_gateway_pb2.ScoreResponse(reward=1.0)

    def CloseSession(self, request: Any, context: Any) -> Any:
        self._heard.note("gateway.CloseSession", context)
        return env_gateway_pb2.CloseSessionResponse()


class Proxy(inference_pb2_grpc.InferenceServiceServicer):
    """Calls the tool, then answers."""

    def __init__(self, heard: Heard) -> None:
        self._heard = heard

    def OpenSession(self, request: Any, context: Any) -> Any:
        self._heard.note("proxy.OpenSession", context)
        return inference_pb2.InferenceServiceOpenSessionResponse()

    def Chat(self, request: Any, context: Any) -> Iterator[Any]:
        self._heard.note("proxy.Chat", context)
        message = inference_pb2.ChatMessage(role="assistant", content="<answer>done</answer>")
        if len(request.messages) == 1:
            call = message_pb2.ToolCall(call_id="c1", name=TOOL, arguments_json='{"text": "hello"}')
            message = inference_pb2.ChatMessage(role="assistant", tool_calls=[call])
        usage = inference_pb2.Usage(prompt_tokens=7, sampled_tokens=3)
        yield inference_pb2.ChatResponse(message=message, finish_reason="stop", usage=usage)

    def CloseSession(self, request: Any, context: Any) -> Any:
        self._heard.note("proxy.CloseSession", context)
        return inference_pb2.InferenceServiceCloseSessionResponse(graph=trajectory_pb2.TokenGraph())


@contextmanager
def neighbours() -> Iterator[tuple[str, Heard]]:
    """Both on one port: its address, and what was heard there."""
    heard, server = Heard(), grpc.server(ThreadPoolExecutor(4))
    env_gateway_pb2_grpc.add_EnvGatewayServiceServicer_to_server(Gateway(heard), server)  # type: ignore[abstract]
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(Proxy(heard), server)  # type: ignore[abstract]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", heard
    finally:
        server.stop(None).wait()
