"""What a journal tells of an earlier attempt, and how its tokens are joined with a later one's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from practicum.node.graphs import first_turns, joined
from practicum.node.model import Model
from practicum.node.past import Past, past_of
from practicum.node.recorder import Recorder
from practicum.v1 import message_pb2, trajectory_pb2

SAMPLED, PROMPT = trajectory_pb2.TOKEN_ROLE_SAMPLED, trajectory_pb2.TOKEN_ROLE_PROMPT


class Attempt:
    """Does what a test says, as the node records it."""

    def __init__(self, number: int = 1, steps: list[trajectory_pb2.Step] | None = None) -> None:
        self.journal: list[message_pb2.Message] = []
        self.recorder = Recorder("t/0", number, self.journal.append, list(steps or []))

    def begin(self) -> Attempt:
        self.recorder.say("task", "user", task=message_pb2.TaskPayload(instruction="open box 17"))
        return self

    def act(self, *call_ids: str, model: bool = False) -> Attempt:
        calls = [message_pb2.ToolCall(call_id=i, name="box__open") for i in call_ids]
        seconds, tokens = (0.5, 90) if model else (None, 0)
        self.recorder.act(
            "agent", message_pb2.Action(text="hm", tool_calls=calls), model_seconds=seconds, tokens=tokens
        )
        return self

    def see(self, call_id: str, *, unknown: bool = False) -> Attempt:
        observation = message_pb2.Observation(call_id=call_id, text=f"saw {call_id}")
        self.recorder.observe("box__open", observation, tool_seconds=None if unknown else 0.25)
        return self


def past(*attempts: Attempt) -> Past | None:
    return past_of([message for attempt in attempts for message in attempt.journal])


def known(*attempts: Attempt) -> Past:
    found = past(*attempts)
    assert found is not None
    return found


def test_steps_come_back_as_they_were_recorded() -> None:
    """With times, results and errors; what others said meanwhile is no step."""
    attempt = Attempt().begin().act("a", "b", model=True).see("a").see("b").act("c").see("c").act(model=True)
    attempt.journal.insert(3, message_pb2.Message(sender="user", headers={"step": "7"}, text="hello"))
    attempt.recorder.say("message", "agent", action=message_pb2.Action(text="no step"))
    found = known(attempt)
    for step, recorded in zip(found.steps, attempt.recorder.steps, strict=True):
        assert abs(step.started_at.ToMicroseconds() - recorded.started_at.ToMicroseconds()) < 100_000
        step.started_at.CopyFrom(recorded.started_at)
        assert step == recorded
    assert (found.calls, found.turns, found.tokens, found.pending) == (3, {1: 2}, 90, [])


def test_calls_whose_results_are_not_told_are_pending() -> None:
    """They may have been made, or not."""
    found = known(Attempt().begin().act("a").see("a").act("b", "c").see("b"))
    assert [call.call_id for call in found.pending] == ["c"]
    assert [found.fits(calls) for calls in (1, 2, 3, 4)] == [False, True, True, False]


def test_what_no_tool_answered_is_no_call() -> None:
    """The environment never heard of a tool that the model made up."""
    found = known(Attempt().begin().act("a").see("a", unknown=True).act("b").see("b"))
    assert [found.fits(calls) for calls in (0, 1, 2)] == [False, True, False]
    assert len(found.steps) == 2


def test_an_attempt_that_began_anew_leaves_nothing_of_the_one_before() -> None:
    """One that went on adds to it."""
    first = Attempt().begin().act("a", model=True).see("a")
    second = Attempt(2, first.recorder.steps).act("b", model=True).see("b")
    third = Attempt(3).begin().act("c").see("c")
    assert [len(known(*attempts).steps) for attempts in ((first,), (first, second), (first, second, third))] == [
        1,
        2,
        1,
    ]
    assert known(first, second).turns == {1: 1, 2: 1}


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: Attempt(),
        lambda: Attempt().begin(),
        lambda: Attempt().begin().act("a").act("b"),
        lambda: Attempt().begin().act("a").see("a").see("a"),
        lambda: Attempt().begin().act("a", "b").see("b").see("a"),
        lambda: Attempt(steps=[trajectory_pb2.Step()]).begin().act("a"),
    ],
    ids=["nothing", "no step", "no result", "a result too many", "side by side", "a step missing"],
)
def test_what_is_not_told_whole_is_not_gone_on_from(attempt: Callable[[], Attempt]) -> None:
    """Nobody guesses."""
    assert past(attempt()) is None


def test_headers_that_make_no_sense_are_not_gone_on_from() -> None:
    """An agent may say anything."""
    attempt = Attempt().begin().act("a")
    attempt.recorder.say("action", "agent", headers={"step": "two"}, action=message_pb2.Action())
    assert past(attempt) is None


async def test_turns_of_two_attempts_are_more_than_the_proxy_has() -> None:
    """It keeps the record of the newest attempt alone: nothing is asked of it, and the attempt begins anew."""
    nobody: Any = None
    assert await Model(nobody, "t/0", 3).take_over(Past(turns={1: 2, 2: 1})) is None


def graph(*roles: int, model: str = "m") -> trajectory_pb2.TokenGraph:
    """A path of nodes; the token of each is its place."""
    nodes = [
        trajectory_pb2.TokenNode(parent=i - 1 if i else None, role=role, token_ids=bytes([i]))  # type: ignore[arg-type]
        for i, role in enumerate(roles)
    ]
    return trajectory_pb2.TokenGraph(agent_id="agent", nodes=nodes, tokenizer_digest="d", model=model)


def test_what_was_sampled_after_the_last_turn_that_is_told_is_left_out() -> None:
    """Nobody acted on it."""
    whole = graph(PROMPT, SAMPLED, PROMPT, SAMPLED, PROMPT, SAMPLED)
    for turns, nodes in ((0, 0), (1, 2), (2, 4), (3, 6)):
        kept = first_turns(whole, turns)
        assert kept is not None and len(kept.nodes) == nodes
    assert first_turns(whole, 4) is None
    assert len(whole.nodes) == 6


def test_graphs_of_one_agent_become_one_forest() -> None:
    """Parents are shifted; each keeps its tokens."""
    (one,) = joined([graph(PROMPT, SAMPLED), graph(PROMPT, PROMPT, SAMPLED)])
    assert [(n.parent if n.HasField("parent") else None, n.token_ids) for n in one.nodes] == [
        (None, b"\0"),
        (0, b"\1"),
        (None, b"\0"),
        (2, b"\1"),
        (3, b"\2"),
    ]
    assert (one.agent_id, one.tokenizer_digest, one.model) == ("agent", "d", "m")


def test_graphs_of_different_models_stay_apart() -> None:
    """Their tokens mean different things."""
    assert [g.model for g in joined([graph(SAMPLED), graph(SAMPLED, model="other")])] == ["m", "other"]
    assert joined([]) == []
