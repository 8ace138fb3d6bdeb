"""How to sample, in vLLM's words."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from practicum.common.errors import InvalidArgument
from practicum.v1 import inference_pb2

DEFAULT_MAX_TOKENS = 256


def sampling_params(
    sampling: inference_pb2.Sampling, *, room: int, end_ids: Collection[int], prompt_logprobs: bool = False
) -> dict[str, Any]:
    """vLLM's `sampling_params`. `room`: tokens that the model can still hold; `end_ids`: tokens that end an answer.

    Log-probabilities come with vLLM's default `--logprobs-mode raw_logprobs`: the log-softmax of the model's own
    logits, before temperature, top-p and top-k. At temperature 1 without cuts, which is how rollouts for training are
    to be sampled, that is exactly the behaviour policy's; at other settings it is what the policy at temperature 1
    would have given the token, which is what a trainer's own forward pass computes too.
    """
    refuse_wrong(sampling)
    params: dict[str, Any] = {
        "temperature": sampling.temperature if sampling.HasField("temperature") else 1.0,
        "max_tokens": min(sampling.max_tokens or DEFAULT_MAX_TOKENS, room),
        "logprobs": 0,
        "stop_token_ids": list(end_ids),
        # The engine needs text only to find stop texts in it.
        "detokenize": bool(sampling.stop),
    }
    if sampling.HasField("top_p"):
        params["top_p"] = sampling.top_p
    if sampling.HasField("top_k"):
        params["top_k"] = sampling.top_k
    if sampling.HasField("seed"):
        params["seed"] = sampling.seed
    if sampling.stop:
        params["stop"] = list(sampling.stop)
    if prompt_logprobs:
        params["prompt_logprobs"] = 0
    return params


def refuse_wrong(sampling: inference_pb2.Sampling) -> None:
    """Names each field that is out of range."""
    wrong = {
        "sampling.temperature": (not 0 <= sampling.temperature <= 100, "give 0 to 100"),
        "sampling.top_p": (sampling.HasField("top_p") and not 0 < sampling.top_p <= 1, "give more than 0, at most 1"),
        "sampling.top_k": (sampling.HasField("top_k") and sampling.top_k < -1, "give 1 or more; 0 or -1 is off"),
        "sampling.max_tokens": (sampling.max_tokens < 0, "give 1 or more, or 0 for the default"),
        "sampling.stop": ("" in sampling.stop, "holds an empty text"),
    }
    found = {field: text for field, (is_wrong, text) in wrong.items() if is_wrong}
    if found:
        raise InvalidArgument(found)
