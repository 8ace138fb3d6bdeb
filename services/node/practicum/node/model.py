"""A rollout's model, through the inference proxy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from grpc import aio

from practicum.common.tracing import metadata, span
from practicum.node.failures import InfrastructureError
from practicum.node.graphs import first_turns
from practicum.node.past import Past
from practicum.node.patience import patiently
from practicum.v1 import (
    env_gateway_pb2,
    inference_pb2,
    inference_pb2_grpc,
    message_pb2,
    trajectory_pb2,
)

SOURCE = message_pb2.ERROR_SOURCE_PROVIDER
CLOSE_SECONDS = 10.0


class Model:
    """One recorded session of the proxy, opened with the first turn."""

    def __init__(self, proxy: inference_pb2_grpc.InferenceServiceAsyncStub, session_id: str, attempt: int) -> None:
        self._proxy = proxy
        self._session_id = session_id
        self._attempt = attempt
        self._opened = False

    async def chat(
        self,
        messages: Sequence[inference_pb2.ChatMessage],
        *,
        tools_json: str,
        sampling: inference_pb2.Sampling,
        timeout: float,
    ) -> inference_pb2.ChatResponse:
        """Has the model continue the conversation. Returns the last response, which holds the whole turn."""
        request = inference_pb2.ChatRequest(
            session_id=self._session_id,
            attempt=self._attempt,
            messages=messages,
            tools_json=tools_json,
            sampling=sampling,
        )

        async def chat(left: float) -> inference_pb2.ChatResponse:
            stream = self._proxy.Chat(request, timeout=left, wait_for_ready=True, metadata=metadata())
            return [response async for response in stream][-1]

        await self._open(timeout)
        with span("chat", {"gen_ai.operation.name": "chat"}) as told:
            response = await patiently(chat, timeout=timeout, source=SOURCE)
            read, sampled = response.usage.prompt_tokens, response.usage.sampled_tokens
            told.tell({"gen_ai.usage.input_tokens": read, "gen_ai.usage.output_tokens": sampled})
            return response

    async def close(self) -> trajectory_pb2.TokenGraph | None:
        """Ends the session. Returns exactly what was read and sampled; None when the model was not used."""
        if not self._opened:
            return None
        graph = await self._close(self._attempt)
        self._opened = False
        return graph

    async def take_over(self, past: Past) -> trajectory_pb2.TokenGraph | None:
        """Ends the session of an earlier attempt, which then samples nothing more. Returns what its turns read and
        sampled; None when that can't be had whole."""
        if len(past.turns) != 1:  # A session has the record of one attempt: the newest.
            return None
        ((attempt, turns),) = past.turns.items()
        try:
            return first_turns(await self._close(attempt), turns)
        except InfrastructureError:
            return None

    async def discard(self) -> None:
        """Ends the session without its record, as far as the proxy can be reached."""
        if not self._opened:
            return
        request = inference_pb2.InferenceServiceCloseSessionRequest(
            session_id=self._session_id, attempt=self._attempt, discard=True
        )
        try:
            await self._proxy.CloseSession(request, timeout=CLOSE_SECONDS, metadata=metadata())
        except aio.AioRpcError:
            return
        finally:
            self._opened = False

    async def _close(self, attempt: int) -> trajectory_pb2.TokenGraph:
        request = inference_pb2.InferenceServiceCloseSessionRequest(session_id=self._session_id, attempt=attempt)

        async def close(left: float) -> inference_pb2.InferenceServiceCloseSessionResponse:
            return await self._proxy.CloseSession(request, timeout=left, wait_for_ready=True, metadata=metadata())

        return (await patiently(close, timeout=CLOSE_SECONDS, source=SOURCE)).graph

    async def _open(self, timeout: float) -> None:
        if self._opened:
            return
        request = inference_pb2.InferenceServiceOpenSessionRequest(
            session_id=self._session_id, attempt=self._attempt, agent_id="agent"
        )
        self._opened = True

        async def open_session(left: float) -> inference_pb2.InferenceServiceOpenSessionResponse:
            return await self._proxy.OpenSession(request, timeout=left, wait_for_ready=True, metadata=metadata())

        await patiently(open_session, timeout=timeout, source=SOURCE)


def tools_json(tools: Sequence[env_gateway_pb2.Tool]) -> str:
    """Tools in OpenAI's form; empty when there are none."""
    if not tools:
        return ""
    return json.dumps(
        [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": json.loads(tool.input_schema_json or "{}"),
                },
            }
            for tool in tools
        ]
    )


def sampling_of(config: Mapping[str, Any], *, max_tokens: int) -> inference_pb2.Sampling:
    """How to sample, from an agent's settings."""
    sampling = inference_pb2.Sampling(max_tokens=max_tokens)
    if "temperature" in config:
        sampling.temperature = float(config["temperature"])
    if "top_p" in config:
        sampling.top_p = float(config["top_p"])
    return sampling
