"""Token graphs as rows to train on: one row for each path in which a sampled token is trained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from practicum.v1 import trajectory_pb2

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float32]
# The version of a token that nobody sampled.
NO_VERSION = -1


class GraphError(ValueError):
    """The graph breaks the protocol; the text says how."""


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence. All four are as long as it; `logprobs` and `versions` hold 0 and -1 where `loss_mask` is 0."""

    token_ids: Ints
    loss_mask: Ints
    logprobs: Floats
    versions: Ints


def rows_of(graph: trajectory_pb2.TokenGraph) -> list[Row]:
    """The graph's rows: a token trains in the path of the earliest leaf that holds it, in others it is context.

    A row ends with its last trained token: what follows teaches nothing, and AReaL places the reward at the end.
    """
    check_parents(graph.nodes)
    nodes = [row_of_node(node) for node in graph.nodes]
    trained: set[int] = set()
    rows = []
    for path in paths_of(graph.nodes):
        fresh = [index for index in path if index not in trained and nodes[index].loss_mask.any()]
        if fresh:
            kept = path[: path.index(fresh[-1]) + 1]
            rows.append(joined(nodes[i] if i in fresh else as_context(nodes[i]) for i in kept))
            trained.update(fresh)
    return rows


def paths_of(nodes: Sequence[trajectory_pb2.TokenNode]) -> Iterator[list[int]]:
    """The paths from roots to leaves, as indices, by the index of the leaf."""
    parents = {node.parent for node in nodes if node.HasField("parent")}
    for leaf in range(len(nodes)):
        if leaf in parents:
            continue
        path = [leaf]
        while nodes[path[-1]].HasField("parent"):
            path.append(nodes[path[-1]].parent)
        yield path[::-1]


def check_parents(nodes: Sequence[trajectory_pb2.TokenNode]) -> None:
    """Refuses a graph that is not a forest with parents before their children."""
    for index, node in enumerate(nodes):
        if node.HasField("parent") and not 0 <= node.parent < index:
            raise GraphError(f"node {index} names node {node.parent} as its parent, which does not come before it")


def row_of_node(node: trajectory_pb2.TokenNode) -> Row:
    """A node's own tokens."""
    if len(node.token_ids) % 4:
        raise GraphError("token ids are not 4 bytes each")
    ids = np.frombuffer(node.token_ids, dtype="<i4").astype(np.int64)
    if node.role != trajectory_pb2.TOKEN_ROLE_SAMPLED:
        return context(ids)
    return Row(ids, np.ones_like(ids), logprobs_of(node, len(ids)), versions_of(node, len(ids)))


def logprobs_of(node: trajectory_pb2.TokenNode, length: int) -> Floats:
    """A sampled node's log-probabilities."""
    if len(node.logprobs) != 4 * length:
        raise GraphError(f"{length} sampled tokens have {len(node.logprobs)} bytes of log-probabilities, not 4 each")
    logprobs = np.frombuffer(node.logprobs, dtype="<f4").astype(np.float32)
    if not np.isfinite(logprobs).all():
        raise GraphError("a sampled token has no finite log-probability")
    return logprobs


def versions_of(node: trajectory_pb2.TokenNode, length: int) -> Ints:
    """The policy version of each token of a sampled node."""
    versions = np.full(length, NO_VERSION, dtype=np.int64)
    place = 0
    for span in node.version_spans:
        if span.start != place or not span.start < span.end <= length:
            raise GraphError("version spans are out of order or leave a gap")
        versions[span.start : span.end] = span.version
        place = span.end
    if place != length:
        raise GraphError(f"version spans cover {place} of {length} sampled tokens")
    return versions


def context(ids: Ints) -> Row:
    """Tokens that are read, not trained."""
    length = len(ids)
    zeros = np.zeros(length, dtype=np.int64)
    return Row(ids, zeros, np.zeros(length, dtype=np.float32), np.full(length, NO_VERSION, dtype=np.int64))


def as_context(row: Row) -> Row:
    """The same tokens, read instead of trained."""
    return context(row.token_ids)


def joined(rows: Iterable[Row]) -> Row:
    """Rows behind each other."""
    parts = list(rows)
    return Row(
        np.concatenate([part.token_ids for part in parts]),
        np.concatenate([part.loss_mask for part in parts]),
        np.concatenate([part.logprobs for part in parts]),
        np.concatenate([part.versions for part in parts]),
    )
