"""Sessions of the gateway, over gRPC and with real servers: who owns one, and how it ends."""

from __future__ import annotations

import itertools

import grpc
import pytest
from support.gateway_door import Door, eventually, refused
from support.rough_gateway import door as door
from support.rough_gateway import gateway as gateway

from practicum.v1 import env_gateway_pb2 as pb
from practicum.v1 import message_pb2, task_pb2


def test_a_higher_attempt_gets_a_new_environment_and_the_old_one_is_swept(door: Door) -> None:
    """And whoever still believes in the lower one is told so."""
    door.open("s", "rough")
    door.call("s", "rough__count")
    assert not door.open("s", "rough", attempt=2).resumed
    assert door.call("s", "rough__count", attempt=2).text == "1"
    assert door.stats().server_processes == 1
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_ATTEMPT"):
        door.call("s", "rough__count", attempt=1)
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_ATTEMPT"):
        door.close("s", attempt=1)
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "STALE_ATTEMPT"):
        door.open("s", "rough", attempt=1)
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_NOT_READY"):
        door.call("s", "rough__count", attempt=3)
    door.close("s", attempt=2)


def test_a_resumed_attempt_finds_the_live_environment(door: Door) -> None:
    """Its state is as the cut-off attempt left it."""
    door.open("s", "rough")
    door.call("s", "rough__count")
    assert door.open("s", "rough", attempt=2, resume=True).resumed
    assert door.call("s", "rough__count", attempt=2, call_id="2").text == "2"
    door.close("s", attempt=2)


def test_a_call_that_was_cut_off_leaves_nothing_to_go_on_from(door: Door) -> None:
    """Whether the tool did it, and how far it got, is known to nobody: the next attempt begins anew."""
    door.open("s", "rough")
    door.call("s", "rough__count")
    cut_off = door.start_call("s", "rough__wait", call_id="cut off")
    next(cut_off)
    cut_off.cancel()
    attempts = itertools.count(2)
    assert eventually(lambda: not door.open("s", "rough", attempt=next(attempts), resume=True).resumed)
    last = next(attempts) - 1
    assert door.call("s", "rough__count", attempt=last).text == "1"
    door.close("s", attempt=last)


def test_a_spent_id_is_refused_and_a_resume_after_it_begins_anew(door: Door) -> None:
    """Late calls hear that the session was closed."""
    door.open("s", "rough")
    door.close("s")
    door.close("s")
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_CLOSED"):
        door.call("s", "rough__count")
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_CLOSED"):
        door.open("s", "rough")
    assert door.state("s").state == pb.SESSION_STATE_CLOSED
    assert not door.open("s", "rough", attempt=2, resume=True).resumed
    door.close("s", attempt=2)


def test_scoring_ends_the_calls(door: Door) -> None:
    """The reward is for what the agent had done by then."""
    door.open("s", "rough")
    scoring = task_pb2.Scoring(scorer="gaia", ground_truth="17")
    request = pb.ScoreRequest(session_id=door.id("s"), attempt=1, answer="I say <answer>71</answer>", scoring=scoring)
    assert door.stub.Score(request).reward == 0
    request.answer = "I say <answer>$17.0</answer>"
    answer = door.stub.Score(request)
    assert (answer.reward, dict(answer.parts), answer.reason) == (1, {"gaia": 1}, "right")
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_NOT_READY"):
        door.call("s", "rough__count")
    assert door.state("s").state == pb.SESSION_STATE_SCORED
    request.scoring.scorer = "vibes"
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "SCORER_UNKNOWN") as info:
        door.stub.Score(request)
    assert info[0].metadata["known"] == "exact, gaia, gaia-published"
    door.close("s")


def test_without_a_name_the_environments_scorer_scores(door: Door) -> None:
    """`exact`, unless the catalogue says otherwise."""
    door.open("s", "rough")
    request = pb.ScoreRequest(
        session_id=door.id("s"), attempt=1, answer="33", scoring=task_pb2.Scoring(ground_truth="33")
    )
    assert dict(door.stub.Score(request).parts) == {"exact": 1}
    door.close("s")


def test_a_session_that_nobody_uses_expires(door: Door) -> None:
    """Its node died; nothing else would close it."""
    door.open("s", "brief")
    assert eventually(lambda: door.state("s").state == pb.SESSION_STATE_CLOSED)


def test_a_session_in_use_does_not_expire(door: Door) -> None:
    """A running call, or KeepAlive, puts the idle limit off."""
    door.open("s", "brief")
    events = list(door.start_call("s", "rough__report", steps=5, pause=0.2))
    assert events[-1].result.text == "done"
    door.stub.KeepAlive(pb.KeepAliveRequest(session_id=door.id("s"), attempt=1))
    door.close("s")


def test_a_session_has_an_oldest_age(door: Door) -> None:
    """However busy it is between its calls."""
    door.open("s", "short")

    def spent() -> bool:
        try:
            door.stub.KeepAlive(pb.KeepAliveRequest(session_id=door.id("s"), attempt=1))
        except grpc.RpcError:
            return True
        return False

    assert eventually(spent)
    assert door.state("s").state == pb.SESSION_STATE_CLOSED


def test_calls_of_a_later_release_are_unimplemented(door: Door) -> None:
    """As the protocol says."""
    with pytest.raises(grpc.RpcError) as caught:
        door.stub.Reset(pb.ResetRequest(session_id=door.id("s"), attempt=1))
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_an_opened_session_tells_how_it_stands(door: Door) -> None:
    """For whoever looks on."""
    before = door.stats()
    door.open("s", "rough")
    door.stub.CallTool(
        pb.CallToolRequest(
            session_id=door.id("s"), attempt=1, call=message_pb2.ToolCall(call_id="c", name="rough__count")
        )
    ).__next__()
    found = door.state("s")
    assert (found.session_id, found.attempt, found.environment, found.calls) == (door.id("s"), 1, "rough", 1)
    assert found.state == pb.SESSION_STATE_READY
    assert found.opened_at.seconds > 0
    after = door.stats()
    assert (after.open_sessions, after.opened_total - before.opened_total) == (1, 1)
    assert after.calls_total - before.calls_total == 1
    door.close("s")
