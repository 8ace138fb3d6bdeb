"""What a trainer does with a token graph, in plain transformers: paths, masks and log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from practicum.v1 import trajectory_pb2


@dataclass(frozen=True, slots=True)
class Sequence:
    """One path from a root to a leaf; all lists are as long as it has tokens."""

    ids: list[int]
    sampled: list[bool]
    trained: list[bool]
    logprobs: list[float]
    versions: list[int]


def sequences(graph: trajectory_pb2.TokenGraph) -> list[Sequence]:
    """Each path, with each sampled token trained in that of the earliest leaf which holds it."""
    parents = {node.parent for node in graph.nodes if node.HasField("parent")}
    seen: set[int] = set()
    result = []
    for leaf in (index for index in range(len(graph.nodes)) if index not in parents):
        path = path_to(graph, leaf)
        result.append(sequence(graph, path, seen))
        seen.update(path)
    return result


def path_to(graph: trajectory_pb2.TokenGraph, node: int) -> list[int]:
    """The nodes from the root on."""
    path = [node]
    while graph.nodes[path[0]].HasField("parent"):
        path.insert(0, graph.nodes[path[0]].parent)
    return path


def sequence(graph: trajectory_pb2.TokenGraph, path: list[int], seen: set[int]) -> Sequence:
    """The tokens of a path; those of nodes already `seen` are context."""
    result = Sequence([], [], [], [], [])
    for index in path:
        node = graph.nodes[index]
        ids = np.frombuffer(node.token_ids, "<i4").tolist()
        sampled = node.role == trajectory_pb2.TOKEN_ROLE_SAMPLED
        result.ids.extend(ids)
        result.sampled.extend([sampled] * len(ids))
        result.trained.extend([sampled and index not in seen] * len(ids))
        result.logprobs.extend(np.frombuffer(node.logprobs, "<f4").tolist() if sampled else [0.0] * len(ids))
        result.versions.extend(versions_of(node) if sampled else [-1] * len(ids))
    return result


def versions_of(node: trajectory_pb2.TokenNode) -> list[int]:
    """The version of each token of a sampled node. Spans must be in order and without gaps."""
    versions: list[int] = []
    for span in node.version_spans:
        assert span.start == len(versions)
        assert span.end > span.start
        versions += [span.version] * (span.end - span.start)
    assert len(versions) == len(node.token_ids) // 4 == len(node.logprobs) // 4
    return versions


class Scorer:
    """The model in plain transformers, with any checkpoint's weights."""

    def __init__(self, model: Path) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()

    @torch.no_grad()
    def logprobs(self, checkpoint: Path, ids: list[int]) -> list[float]:
        """The log-probability of each token after those before it; 0 for the first."""
        self._model.load_state_dict(load_file(checkpoint / "model.safetensors"))
        logits = self._model(input_ids=torch.tensor([ids])).logits[0, :-1]
        scores = torch.log_softmax(logits, dim=-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
        return [0.0, *scores.tolist()]
