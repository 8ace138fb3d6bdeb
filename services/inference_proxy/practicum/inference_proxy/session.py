"""One recorded session: where a conversation continues, and what came of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from practicum.inference_proxy.conversation import Digester, Turn
from practicum.inference_proxy.graph import ROOT, Graph, Role, Sample, Segment
from practicum.inference_proxy.packing import TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation continues."""

    node: int
    """The last node of its recorded history; ROOT when nothing of it is recorded."""
    matched: int
    """How many of its turns that history holds."""
    digester: Digester
    """Has read the whole conversation."""


class Session:
    """The token graph of one attempt, and which conversation each sampled node ends."""

    def __init__(self, session_id: str, *, attempt: int, agent_id: str) -> None:
        self.session_id = session_id
        self.attempt = attempt
        self.agent_id = agent_id
        self.graph = Graph()
        self._ends: dict[bytes, int] = {}

    def place(self, turns: Sequence[Turn], tools_json: str) -> Place:
        """The longest recorded history that begins this conversation. Histories end with a sampled answer."""
        digester = Digester(tools_json)
        node, matched = ROOT, 0
        for count, turn in enumerate(turns, start=1):
            found = self._ends.get(digester.add(turn))
            if found is not None:
                node, matched = found, count
        return Place(node, matched, digester)

    def branches(self, place: Place, segments: Sequence[Segment]) -> bool:
        """Whether this conversation parts from what is recorded.

        Another sample of the same conversation is a branch of the graph too, but its history does not differ.
        """
        return not self.graph.is_leaf(place.node) and not self.graph.holds(place.node, segments)

    def ended(self, node: int, end_ids: frozenset[int]) -> bool:
        """Whether a sampled node's last token ended the turn."""
        return int.from_bytes(self.graph.nodes[node].token_ids[-TOKEN_BYTES:], "little") in end_ids

    def record(self, place: Place, segments: Sequence[Segment], sample: Sample, answer: Turn) -> None:
        """Records a call as a whole. What failed half-way is never recorded."""
        self._ends[place.digester.add(answer)] = self.graph.add(place.node, segments, sample)

    def record_tokens(self, prompt: bytes, sample: Sample) -> None:
        """Records a call whose prompt was given as tokens, below the longest recorded path that begins it."""
        node, known = self.graph.match(prompt)
        rest = [Segment(Role.PROMPT, prompt[known:])] if known < len(prompt) else []
        self.graph.add(node, rest, sample)
