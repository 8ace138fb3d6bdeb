"""The run's side of the inference proxy: publishes weights, and probes whether engine and trainer agree on them."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import numpy as np
import structlog
from grpc import aio

from practicum.common.channels import connect
from practicum.trainer.outcome import RunFailed
from practicum.trainer.retry import reason, repeated
from practicum.trainer.rows import Floats, Ints
from practicum.v1 import inference_pb2, inference_pb2_grpc

log = structlog.get_logger(__name__)

PATIENCE_SECONDS = 180.0
PROBE_TOKENS = 64
# Measured between vLLM on a CPU and AReaL in float32: below 1e-5. Other weights, or another template of packing,
# differ by far more than a thousandth.
FLOAT32_LIMIT = 1e-3


class Inference:
    """Calls of one run. Methods are called from one event loop."""

    def __init__(self, address: str, *, model: str) -> None:
        """`model`: its served name; empty: the only one."""
        self._channel = connect(address)
        self._stub: inference_pb2_grpc.InferenceServiceAsyncStub
        self._stub = inference_pb2_grpc.InferenceServiceStub(self._channel)
        self._model = model

    async def version(self) -> int:
        """The version being served."""
        request = inference_pb2.GetPolicyVersionRequest()
        answer = await repeated(lambda: self._stub.GetPolicyVersion(request, timeout=30), seconds=PATIENCE_SECONDS)
        return answer.version

    async def publish(self, version: int, folder: Path) -> None:
        """Has every engine serve the folder's weights under this version."""
        request = inference_pb2.UpdateWeightsRequest(version=version, path=str(folder))
        try:
            await repeated(lambda: self._stub.UpdateWeights(request, timeout=180), seconds=PATIENCE_SECONDS)
        except aio.AioRpcError as error:
            raise RunFailed(f"the inference proxy did not take policy version {version}: {reason(error)}") from error

    async def tokenizer_digest(self, asker: str) -> str:
        """The digest of the served tokenizer, which every trained token must carry."""
        # A session is never opened again once it is closed: each asking has its own, whoever asked before.
        session_id = f"{asker}.{uuid4().hex}"
        opening = inference_pb2.InferenceServiceOpenSessionRequest(session_id=session_id, attempt=1, model=self._model)
        answer = await repeated(lambda: self._stub.OpenSession(opening, timeout=30), seconds=PATIENCE_SECONDS)
        await self._discard(session_id)
        return answer.tokenizer_digest

    async def _discard(self, session_id: str) -> None:
        closing = inference_pb2.InferenceServiceCloseSessionRequest(session_id=session_id, attempt=1, discard=True)
        try:
            await self._stub.CloseSession(closing, timeout=30)
        except aio.AioRpcError as error:
            log.warning("session_left_open", detail=reason(error))  # The proxy forgets it by itself.

    async def logprobs(self, token_ids: Ints) -> Floats:
        """The engine's log-probability of each token after the first."""
        request = inference_pb2.GenerateRequest(
            prompt_token_ids=token_ids.astype("<i4").tobytes(),
            sampling=inference_pb2.Sampling(max_tokens=1),
            prompt_logprobs=True,
            model=self._model,
        )
        found = await repeated(lambda: self._scored(request), seconds=PATIENCE_SECONDS)
        return np.frombuffer(found, dtype="<f4")[1:]

    async def _scored(self, request: inference_pb2.GenerateRequest) -> bytes:
        return b"".join([response.prompt_logprobs async for response in self._stub.Generate(request, timeout=120)])

    async def close(self) -> None:
        """Closes the channel."""
        await self._channel.close()


def approximate_kl(engine: Floats, trainer: Floats) -> float:
    """|mean(log p_engine - log p_trainer)|, the estimator that AReaL reports as `approx_kl`."""
    return float(abs(np.mean(engine.astype(np.float64) - trainer.astype(np.float64))))


def check_probe(engine: Floats, trainer: Floats, *, version: int, limit: float = FLOAT32_LIMIT) -> float:
    """The approximate KL. Raises RunFailed when it reaches the limit or can't be told."""
    if len(engine) != len(trainer):
        raise RunFailed(f"the engine scored {len(engine)} of {len(trainer)} probe tokens at policy version {version}")
    found = approximate_kl(engine, trainer)
    if not found < limit:
        raise RunFailed(
            f"engine and trainer disagree on policy version {version}: |approximate KL| is {found:.2g} over "
            f"{len(trainer)} tokens, and has to be below {limit:g}"
        )
    return found


def random_tokens(vocabulary: int, *, seed: int) -> Ints:
    """Tokens to score before there are real ones."""
    return np.random.default_rng(seed).integers(0, vocabulary, PROBE_TOKENS).astype(np.int64)
