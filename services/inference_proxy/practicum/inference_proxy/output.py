"""What vLLM's token door answers, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from practicum.inference_proxy.graph import Sample
from practicum.inference_proxy.packing import pack_ids, pack_logprobs
from practicum.inference_proxy.spans import spans_of


@dataclass(slots=True)
class Output:
    """Sampled tokens: all of them, or a piece of a stream."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    weight_versions: list[dict[str, Any]] | None = None
    """With the finish reason: spans over all tokens of the generation."""
    prompt_logprobs: list[float] | None = None

    def extend(self, piece: Output) -> None:
        """Appends the next piece of a stream."""
        self.token_ids += piece.token_ids
        self.logprobs += piece.logprobs
        self.finish_reason = piece.finish_reason or self.finish_reason
        self.weight_versions = piece.weight_versions or self.weight_versions

    def sample(self, finish_reason: str) -> Sample:
        """As it is recorded. ValueError unless the engine told log-probability and version of each token."""
        if len(self.logprobs) != len(self.token_ids):
            raise ValueError(f"{len(self.logprobs)} log-probabilities for {len(self.token_ids)} tokens")
        spans = spans_of(self.weight_versions or [], tokens=len(self.token_ids))
        return Sample(pack_ids(self.token_ids), pack_logprobs(self.logprobs), spans, finish_reason)


def parse_response(body: Mapping[str, Any]) -> Output:
    """A whole answer."""
    output = parse_chunk(body)
    prompt = body.get("prompt_logprobs")
    if prompt is not None:
        # One entry for each prompt token: {id: {logprob}}; the first has nothing before it.
        output.prompt_logprobs = [0.0 if entry is None else next(iter(entry.values()))["logprob"] for entry in prompt]
    return output


def parse_chunk(body: Mapping[str, Any]) -> Output:
    """A piece of a stream, or the choice of a whole answer."""
    if "choices" not in body or not body["choices"]:
        return Output()
    choice = body["choices"][0]
    content = (choice["logprobs"] or {}).get("content") or []
    return Output(
        choice["token_ids"],
        [entry["logprob"] for entry in content],
        choice["finish_reason"],
        choice["weight_versions"],
    )
