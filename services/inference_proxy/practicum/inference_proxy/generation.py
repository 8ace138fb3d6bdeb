"""Continues tokens: the prompt is read exactly as it is given, and recorded when a session is named."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from practicum.inference_proxy.chat import sample_of
from practicum.inference_proxy.chunks import CHUNK_TOKENS, gathered
from practicum.inference_proxy.graph import Sample
from practicum.inference_proxy.model import Model
from practicum.inference_proxy.output import Output
from practicum.inference_proxy.prompts import Prompts
from practicum.inference_proxy.sampler import Sampler
from practicum.inference_proxy.session import Session
from practicum.inference_proxy.sessions import Sessions
from practicum.v1 import inference_pb2


class Generation:
    """Generates with one model."""

    def __init__(self, model: Model, sampler: Sampler, sessions: Sessions) -> None:
        self._prompts = Prompts(model)
        self._sampler = sampler
        self._sessions = sessions

    async def record(
        self, session: Session, prompt: bytes, sampling: inference_pb2.Sampling
    ) -> AsyncGenerator[Output | Sample, None]:
        """Chunks, and at last the whole as it was recorded."""
        with self._sessions.call(session):
            async with aclosing(self.run(prompt, sampling)) as chunks:
                async for chunk in chunks:
                    if isinstance(chunk, Sample):
                        self._sessions.check(session)
                        session.record_tokens(prompt, chunk)
                    yield chunk

    async def run(
        self, prompt: bytes, sampling: inference_pb2.Sampling, *, prompt_logprobs: bool = False
    ) -> AsyncGenerator[Output | Sample, None]:
        """Chunks, and at last the whole."""
        self._prompts.check(prompt)
        engine = self._sampler.engine
        request = self._prompts.request(
            prompt, sampling, max_tokens=self._sampler.max_tokens(), prompt_logprobs=prompt_logprobs
        )
        whole = Output()
        # What fits into one chunk is asked for at once: a stream costs the engine several times as much.
        if prompt_logprobs or request["sampling_params"]["max_tokens"] <= CHUNK_TOKENS:
            whole = await self._sampler.generate(request)
            yield whole
        else:
            async with aclosing(self._sampler.stream(request)) as pieces:
                async for chunk in gathered(pieces):
                    whole.extend(chunk)
                    yield chunk
        yield sample_of(whole, whole.finish_reason or "abort", engine.address)
