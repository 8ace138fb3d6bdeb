"""The recorder: whatever is recorded comes out id for id, shared context is kept once, and spans cover each token."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from practicum.inference_proxy.conversation import Call, Turn
from practicum.inference_proxy.graph import ROOT, Role, Sample, Segment, Span
from practicum.inference_proxy.packing import pack_ids, pack_logprobs, unpack_ids
from practicum.inference_proxy.session import Session
from practicum.inference_proxy.spans import label, parse_label, spans_of

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=6)


def sample(ids: list[int], finish_reason: str = "stop") -> Sample:
    """Sampled tokens of version 1."""
    return Sample(pack_ids(ids), pack_logprobs([-1.0] * len(ids)), (Span(1, 0, len(ids)),), finish_reason)


@given(st.lists(st.tuples(TOKENS, TOKENS), max_size=12))
def test_every_recorded_call_is_a_path_of_its_own_tokens(calls: list[tuple[list[int], list[int]]]) -> None:
    """However prompts overlap: one sampled node a call, whose path reads prompt and sample."""
    session = Session("s", attempt=1, agent_id="a")
    for prompt, ids in calls:
        session.record_tokens(pack_ids(prompt), sample(ids))
    nodes = session.graph.nodes
    sampled = [index for index, node in enumerate(nodes) if node.role is Role.SAMPLED]
    assert [unpack_ids(session.graph.tokens(index)) for index in sampled] == [p + s for p, s in calls]
    assert all(node.parent < index for index, node in enumerate(nodes))


@given(st.lists(TOKENS, min_size=1, max_size=8), TOKENS)
def test_a_prompt_that_goes_on_extends_what_is_recorded(turns: list[list[int]], ids: list[int]) -> None:
    """Turn after turn in tokens makes one path, without a token twice."""
    session, history = Session("s", attempt=1, agent_id="a"), []
    for turn in turns:
        history += turn
        session.record_tokens(pack_ids(history), sample(ids))
        history += ids
    nodes = session.graph.nodes
    assert sum(len(unpack_ids(node.token_ids)) for node in nodes) == len(history)
    assert unpack_ids(session.graph.tokens(len(nodes) - 1)) == history
    assert [node.parent for node in nodes] == list(range(ROOT, len(nodes) - 1))


def user(text: str) -> Turn:
    return Turn("user", text)


def test_a_conversation_that_goes_on_does_not_branch_and_an_edited_one_does() -> None:
    """Only what parts from the recorded history is a branch; another sample of the same turn is none."""
    session = Session("s", attempt=1, agent_id="a")
    question, answer = user("a"), Turn("assistant", "b", (Call("1", "f", "{}"),))
    first = [Segment(Role.PROMPT, pack_ids([1, 2]))]

    def turn(turns: list[Turn], segments: list[Segment], said: Turn) -> bool:
        place = session.place(turns, "")
        branched = session.branches(place, segments)
        session.record(place, segments, sample([9]), said)
        return branched

    assert not turn([question], first, answer)
    assert not turn([question], first, Turn("assistant", "c"))
    assert not turn([question, answer, user("d")], [Segment(Role.PROMPT, pack_ids([3]))], Turn("assistant", "e"))
    assert turn([question, answer, user("x")], [Segment(Role.PROMPT, pack_ids([4]))], Turn("assistant", "e"))
    assert turn([user("z")], [Segment(Role.PROMPT, pack_ids([5]))], Turn("assistant", "e"))
    assert session.place([question, answer, user("d"), Turn("assistant", "e"), user("f")], "").matched == 4
    assert session.place([question, answer, user("d")], "[]").matched == 0


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=8))
def test_spans_cover_each_token_once(runs: list[tuple[int, int]]) -> None:
    """Empty spans vanish and neighbours of one version merge; nothing else changes."""
    reported, versions = [], []
    for version, length in runs:
        start = len(versions)
        versions += [version] * length
        reported.append({"version": label(version, "x"), "start": start, "end": len(versions)})
    spans = spans_of(reported, tokens=len(versions))
    assert [span.version for span in spans for _ in range(span.start, span.end)] == versions
    assert all(one.version != next_one.version for one, next_one in pairwise(spans))


@pytest.mark.parametrize(
    "reported",
    [
        [],
        [{"version": "1 x", "start": 0, "end": 2}],
        [{"version": "1 x", "start": 1, "end": 3}],
        [{"version": "1 x", "start": 0, "end": 2}, {"version": "1 x", "start": 1, "end": 3}],
        [{"version": "somebody else's", "start": 0, "end": 3}],
    ],
)
def test_spans_that_leave_a_token_without_its_version_are_refused(reported: list[dict[str, object]]) -> None:
    """A token whose version is a guess must not be recorded."""
    with pytest.raises(ValueError, match=r"\d|literal"):
        spans_of(reported, tokens=3)


def test_an_untouched_engine_serves_version_0() -> None:
    """vLLM's own stamp, and ours with blanks in the path."""
    assert parse_label("default") == (0, "")
    assert parse_label(label(12, "run a/step 3")) == (12, "run a/step 3")
