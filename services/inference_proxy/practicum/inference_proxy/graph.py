"""The recorder: which tokens were read and sampled, as a forest of runs. Pure, and about 9 bytes a sampled token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from practicum.inference_proxy.packing import TOKEN_BYTES

ROOT = -1


class Role(IntEnum):
    """What a run of tokens is; the numbers are the protocol's TokenRole."""

    PROMPT = 1
    SAMPLED = 2
    TOOL = 3
    TEMPLATE = 4


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens `start` to `end` (exclusive) of a node were sampled by policy `version`."""

    version: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens that are to be read: little-endian int32, 4 bytes each."""

    role: Role
    token_ids: bytes


@dataclass(frozen=True, slots=True)
class Sample:
    """Tokens that were sampled: int32 ids, float32 log-probabilities, and spans that cover all of them."""

    token_ids: bytes
    logprobs: bytes
    spans: tuple[Span, ...]
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Node:
    """Only what is added to the parent (ROOT: none). Context has no log-probabilities and no spans."""

    parent: int
    role: Role
    token_ids: bytes
    logprobs: bytes = b""
    spans: tuple[Span, ...] = ()
    finish_reason: str = ""


class Graph:
    """A forest. Nodes are only ever appended, parents before children."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._children: dict[int, list[int]] = {}

    def add(self, parent: int, segments: Sequence[Segment], sample: Sample) -> int:
        """Records one call: what was read below `parent`, then what was sampled. Answers with the sampled node.

        Context that is there already is shared, so the same prompt sampled again costs only its sample.
        """
        for segment in segments:
            found = self._find(parent, segment)
            parent = self._append(Node(parent, segment.role, segment.token_ids)) if found is None else found
        return self._append(
            Node(parent, Role.SAMPLED, sample.token_ids, sample.logprobs, sample.spans, sample.finish_reason)
        )

    def holds(self, parent: int, segments: Sequence[Segment]) -> bool:
        """Whether this context is recorded below `parent` already."""
        for segment in segments:
            found = self._find(parent, segment)
            if found is None:
                return False
            parent = found
        return True

    def is_leaf(self, node: int) -> bool:
        """Whether nothing follows the node (for ROOT: whether nothing is recorded)."""
        return node not in self._children

    def tokens(self, node: int) -> bytes:
        """The whole path from its root to the end of `node`; nothing for ROOT."""
        return b"".join([self.nodes[step].token_ids for step in reversed(list(self._ancestry(node)))])

    def match(self, prompt: bytes) -> tuple[int, int]:
        """The deepest node whose path begins `prompt`, and the path's length in bytes."""
        best, waiting = (ROOT, 0), [(ROOT, 0)]
        while waiting:
            node, offset = waiting.pop()
            if offset > best[1]:
                best = (node, offset)
            for child in self._children.get(node, ()):
                token_ids = self.nodes[child].token_ids
                if prompt.startswith(token_ids, offset):
                    waiting.append((child, offset + len(token_ids)))
        return best

    def sampled_tokens(self) -> int:
        """How many tokens were sampled."""
        return sum(len(node.token_ids) for node in self.nodes if node.role is Role.SAMPLED) // TOKEN_BYTES

    def _ancestry(self, node: int) -> Iterator[int]:
        while node != ROOT:
            yield node
            node = self.nodes[node].parent

    def _find(self, parent: int, segment: Segment) -> int | None:
        for child in self._children.get(parent, ()):
            node = self.nodes[child]
            if node.role is segment.role and node.token_ids == segment.token_ids:
                return child
        return None

    def _append(self, node: Node) -> int:
        self.nodes.append(node)
        self._children.setdefault(node.parent, []).append(len(self.nodes) - 1)
        return len(self.nodes) - 1
