"""Makes the engine's requests, and refuses what the engine could not serve."""

from __future__ import annotations

from typing import Any

from practicum.common.errors import InvalidArgument
from practicum.inference_proxy.errors import out_of_vocabulary, prompt_too_long
from practicum.inference_proxy.model import Model
from practicum.inference_proxy.packing import TOKEN_BYTES, unpack_ids
from practicum.inference_proxy.sampling import sampling_params
from practicum.v1 import inference_pb2


class Prompts:
    """Requests for one model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._end_ids = sorted(model.end_ids)

    def request(
        self, prompt: bytes, sampling: inference_pb2.Sampling, *, max_tokens: int, prompt_logprobs: bool = False
    ) -> dict[str, Any]:
        """The engine's request. `max_tokens`: what the model holds."""
        token_ids = unpack_ids(prompt)
        if len(token_ids) >= max_tokens:
            raise prompt_too_long(len(token_ids), max_tokens)
        params = sampling_params(
            sampling, room=max_tokens - len(token_ids), end_ids=self._end_ids, prompt_logprobs=prompt_logprobs
        )
        return {"token_ids": token_ids, "sampling_params": params}

    def check(self, prompt: bytes) -> None:
        """Refuses a prompt that was given as ids, unless each is one of the model's."""
        if not prompt or len(prompt) % TOKEN_BYTES:
            raise InvalidArgument({"prompt_token_ids": "give one token or more, as 4 bytes each"})
        for token in unpack_ids(prompt):
            if not 0 <= token < self._model.vocabulary:
                raise out_of_vocabulary(token, self._model.vocabulary)
