"""InferenceService: message → domain call → message. Calls not listed here are UNIMPLEMENTED."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from google.protobuf.duration_pb2 import Duration
from grpc import aio

from practicum.common.errors import InvalidArgument
from practicum.inference_proxy.chat import Answer, Chat
from practicum.inference_proxy.engine import Engine
from practicum.inference_proxy.errors import engine_unavailable, model_unknown
from practicum.inference_proxy.generation import Generation
from practicum.inference_proxy.graph import Sample
from practicum.inference_proxy.messages import PAUSE_MODES, ask_of, chat_response, token_graph, version_spans
from practicum.inference_proxy.model import Model
from practicum.inference_proxy.output import Output
from practicum.inference_proxy.packing import pack_ids, pack_logprobs
from practicum.inference_proxy.policy import Policy
from practicum.inference_proxy.publisher import Publisher
from practicum.inference_proxy.sampler import Sampler
from practicum.inference_proxy.session import Session
from practicum.inference_proxy.sessions import Sessions
from practicum.v1 import inference_pb2, inference_pb2_grpc

Context = aio.ServicerContext[Any, Any]
UPDATE_SECONDS = 120.0


class InferenceService(inference_pb2_grpc.InferenceServiceServicer):
    """The gRPC door. Each call is described in the .proto."""

    def __init__(
        self, model: Model, sampler: Sampler, *, sessions: Sessions, publisher: Publisher, policy: Policy
    ) -> None:
        self._model = model
        self._sampler = sampler
        self._sessions = sessions
        self._publisher = publisher
        self._policy = policy
        self._chat = Chat(model, sampler, sessions)
        self._generation = Generation(model, sampler, sessions)

    async def OpenSession(
        self, request: inference_pb2.InferenceServiceOpenSessionRequest, context: Context
    ) -> inference_pb2.InferenceServiceOpenSessionResponse:
        """Opens a recorded session."""
        refuse_unnamed(request.session_id, request.attempt)
        engine = self._known_engine(request.model)
        self._sessions.open(request.session_id, attempt=request.attempt, agent_id=request.agent_id)
        return inference_pb2.InferenceServiceOpenSessionResponse(
            policy_version=self._policy.version,
            tokenizer_digest=self._model.digest,
            model=engine.model,
            max_model_tokens=engine.max_tokens,
        )

    async def Generate(
        self, request: inference_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[inference_pb2.GenerateResponse]:
        """Continues tokens."""
        last: Output | None = None
        async with aclosing(self._generated(request)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Sample):
                    yield last_response(last or Output(), chunk)
                    return
                if last is not None:
                    yield generate_response(last)
                last = chunk

    async def Chat(
        self, request: inference_pb2.ChatRequest, context: Context
    ) -> AsyncIterator[inference_pb2.ChatResponse]:
        """Continues a conversation."""
        session, ask = self._session(request.session_id, request.attempt), ask_of(request)
        if not request.stream_text:
            yield chat_response(await self._chat.answer(session, ask))
            return
        async with aclosing(self._chat.stream(session, ask)) as parts:
            async for part in parts:
                if isinstance(part, Answer):
                    yield chat_response(part)
                elif part:
                    yield inference_pb2.ChatResponse(text_delta=part)

    async def CloseSession(
        self, request: inference_pb2.InferenceServiceCloseSessionRequest, context: Context
    ) -> inference_pb2.InferenceServiceCloseSessionResponse:
        """Ends a session and returns what was recorded."""
        session = self._sessions.close(request.session_id, request.attempt, discard=request.discard)
        if request.discard:
            return inference_pb2.InferenceServiceCloseSessionResponse()
        graph = token_graph(
            session.graph,
            agent_id=session.agent_id,
            digest=self._model.digest,
            model=self._sampler.engine.model,
        )
        return inference_pb2.InferenceServiceCloseSessionResponse(graph=graph)

    async def UpdateWeights(
        self, request: inference_pb2.UpdateWeightsRequest, context: Context
    ) -> inference_pb2.UpdateWeightsResponse:
        """Publishes weights."""
        if request.version < 1:
            raise InvalidArgument({"version": "give 1 or more"})
        published = await self._publisher.publish(
            request.version,
            request.path,
            mode=PAUSE_MODES.get(request.pause_mode, "keep"),
            timeout_seconds=request.timeout.ToNanoseconds() / 1e9 if request.HasField("timeout") else UPDATE_SECONDS,
        )
        paused = Duration()
        paused.FromNanoseconds(int(published.paused_seconds * 1e9))
        return inference_pb2.UpdateWeightsResponse(version=published.version, paused=paused, confirmed_engines=1)

    async def GetPolicyVersion(
        self, request: inference_pb2.GetPolicyVersionRequest, context: Context
    ) -> inference_pb2.GetPolicyVersionResponse:
        """The version that is served."""
        return inference_pb2.GetPolicyVersionResponse(version=self._policy.version, path=self._policy.path)

    async def WatchPolicyVersion(
        self, request: inference_pb2.WatchPolicyVersionRequest, context: Context
    ) -> AsyncIterator[inference_pb2.WatchPolicyVersionResponse]:
        """Streams the version now and at every change."""
        async for version in self._policy.watch():
            yield inference_pb2.WatchPolicyVersionResponse(version=version)

    async def ListEngines(
        self, request: inference_pb2.ListEnginesRequest, context: Context
    ) -> inference_pb2.ListEnginesResponse:
        """Lists the engine."""
        engine = self._sampler.engine
        info = inference_pb2.EngineInfo(
            address=engine.address,
            serving=engine.serving,
            policy_version=engine.version or 0,
            in_flight=engine.in_flight,
            model=engine.model,
        )
        return inference_pb2.ListEnginesResponse(engines=[info])

    async def GetLoads(
        self, request: inference_pb2.GetLoadsRequest, context: Context
    ) -> inference_pb2.GetLoadsResponse:
        """How busy the engine is."""
        return inference_pb2.GetLoadsResponse(
            in_flight=self._sampler.engine.in_flight,
            open_sessions=self._sessions.open_count(),
            sampled_tokens_total=self._sampler.sampled_tokens,
            prompt_tokens_total=self._sampler.prompt_tokens,
        )

    def _generated(self, request: inference_pb2.GenerateRequest) -> AsyncGenerator[Output | Sample, None]:
        if not request.session_id:
            self._known_engine(request.model)
            return self._generation.run(
                request.prompt_token_ids, request.sampling, prompt_logprobs=request.prompt_logprobs
            )
        if request.prompt_logprobs:
            raise InvalidArgument({"prompt_logprobs": "is for unrecorded requests; leave session_id empty"})
        session = self._session(request.session_id, request.attempt)
        return self._generation.record(session, request.prompt_token_ids, request.sampling)

    def _session(self, session_id: str, attempt: int) -> Session:
        refuse_unnamed(session_id, attempt)
        return self._sessions.get(session_id, attempt)

    def _known_engine(self, model: str) -> Engine:
        engine = self._sampler.engine
        if not engine.model:
            raise engine_unavailable(engine.address, engine.why_not)
        if model not in ("", engine.model):
            raise model_unknown(model, engine.model)
        return engine


def refuse_unnamed(session_id: str, attempt: int) -> None:
    """Every session call names its session and attempt."""
    wrong = {} if session_id else {"session_id": "is empty; give the rollout's id"}
    if attempt < 1:
        wrong["attempt"] = "give 1 or more"
    if wrong:
        raise InvalidArgument(wrong)


def generate_response(chunk: Output) -> inference_pb2.GenerateResponse:
    """A chunk that is not the last."""
    return inference_pb2.GenerateResponse(token_ids=pack_ids(chunk.token_ids), logprobs=pack_logprobs(chunk.logprobs))


def last_response(chunk: Output, whole: Sample) -> inference_pb2.GenerateResponse:
    """The last chunk: with what is known of the whole."""
    response = generate_response(chunk)
    response.finish_reason = whole.finish_reason
    response.version_spans.extend(version_spans(whole.spans))
    if chunk.prompt_logprobs is not None:
        response.prompt_logprobs = pack_logprobs(chunk.prompt_logprobs)
    return response
