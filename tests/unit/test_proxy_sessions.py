"""Sessions: the newest attempt wins, closing is repeatable, and nothing is kept for ever."""

from __future__ import annotations

import pytest

from practicum.common.errors import FailedPrecondition, NotFound
from practicum.inference_proxy.graph import Sample, Span
from practicum.inference_proxy.sessions import CLOSED_SECONDS, IDLE_SECONDS, Sessions


class Clock:
    """Time that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_opening_again_finds_the_session_and_a_higher_attempt_begins_anew() -> None:
    """Idempotent by id and attempt; lower attempts are refused from then on."""
    sessions = Sessions()
    first = sessions.open("a", attempt=1, agent_id="x")
    assert sessions.open("a", attempt=1, agent_id="x") is first
    second = sessions.open("a", attempt=2, agent_id="x")
    assert second is not first
    for call in (sessions.get, lambda s, a: sessions.open(s, attempt=a, agent_id="x")):
        with pytest.raises(FailedPrecondition, match="followed by attempt 2"):
            call("a", 1)


def test_a_result_that_comes_after_its_session_ended_is_refused() -> None:
    """It would be recorded in a graph that was handed over already."""
    sessions = Sessions()
    session = sessions.open("a", attempt=1, agent_id="x")
    sessions.close("a", 1, discard=False)
    with pytest.raises(NotFound):
        sessions.check(session)
    with pytest.raises(FailedPrecondition, match="closed"):
        sessions.open("a", attempt=1, agent_id="x")


def test_closing_answers_the_same_until_it_is_forgotten() -> None:
    """A repeat is safe for ten minutes."""
    clock = Clock()
    sessions = Sessions(clock)
    session = sessions.open("a", attempt=1, agent_id="x")
    assert sessions.open_count() == 1
    assert sessions.close("a", 1, discard=False) is session
    assert sessions.close("a", 1, discard=False) is session
    assert sessions.open_count() == 0
    clock.now = CLOSED_SECONDS + 1
    assert sessions.forget_expired() == 1
    with pytest.raises(NotFound):
        sessions.close("a", 1, discard=False)


def test_discarding_drops_the_record() -> None:
    """Nothing of it is kept."""
    sessions = Sessions()
    session = sessions.open("a", attempt=1, agent_id="x")
    session.record_tokens(b"\1\0\0\0", Sample(b"\2\0\0\0", b"\0\0\0\0", (Span(1, 0, 1),), "stop"))
    assert not sessions.close("a", 1, discard=True).graph.nodes


def test_a_session_is_not_idle_while_a_call_runs() -> None:
    """However long the call takes; afterwards its time starts again."""
    clock = Clock()
    sessions = Sessions(clock)
    session = sessions.open("a", attempt=1, agent_id="x")
    with sessions.call(session):
        clock.now = 2 * IDLE_SECONDS
        assert sessions.forget_expired() == 0
    assert sessions.forget_expired() == 0
    clock.now += IDLE_SECONDS + 1
    assert sessions.forget_expired() == 1
