"""Who is called next, where there are several executors: by nodes, and by the Python client."""

from __future__ import annotations

import grpc
import pytest
from grpc import aio

from practicum.client import CallFailed
from practicum.client.route import Route
from practicum.common.errors import ConfigError, Unavailable, to_status
from practicum.common.executors import Executors
from practicum.executor.leadership.standby import not_leader


def answer(error: Unavailable) -> aio.AioRpcError:
    """The error as a caller gets it."""
    status = to_status(error)
    trailing = aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    return aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, aio.Metadata(), trailing, details=status.message)


CUT = aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, aio.Metadata(), aio.Metadata(), details="connection refused")


def test_one_executor_is_called_again_and_again() -> None:
    """There is no other."""
    executors = Executors("a:1")
    executors.failed("a:1", CUT)
    assert (executors.address, executors.several) == ("a:1", False)


def test_each_of_several_has_its_turn() -> None:
    """In their order, and round."""
    executors, asked = Executors("a:1, b:2,c:3"), []
    for _ in range(4):
        asked.append(executors.address)
        executors.failed(executors.address, CUT)
    assert asked == ["a:1", "b:2", "c:3", "a:1"]
    assert executors.several


def test_the_leader_that_a_standby_names_is_called_next() -> None:
    """Although nobody listed it; when it fails, those that are listed are asked again."""
    executors = Executors("a:1")
    executors.failed("a:1", answer(not_leader("z:9")))
    assert (executors.address, executors.several) == ("z:9", True)
    executors.failed("z:9", CUT)
    assert (executors.address, executors.several) == ("a:1", True)


def test_a_standby_that_knows_no_leader_is_left_for_the_next() -> None:
    """As is one that says anything else."""
    executors = Executors("a:1,b:2")
    executors.failed("a:1", answer(not_leader("")))
    assert executors.address == "b:2"
    executors.failed("b:2", answer(Unavailable("it drains", reason="DRAINING", metadata={"leader": "x:1"})))
    assert executors.address == "a:1"
    executors.failed("a:1")
    assert executors.address == "b:2"


def test_calls_that_failed_together_turn_once() -> None:
    """Else two of them would come back to where both failed."""
    executors = Executors("a:1,b:2")
    executors.failed("a:1", CUT)
    executors.failed("a:1", CUT)
    assert executors.address == "b:2"


@pytest.mark.parametrize("wrong", ["", "a", "a:1,", "a:1,b", "a:99999"])
def test_a_wrong_address_is_named(wrong: str) -> None:
    """Before anything is called."""
    with pytest.raises(ConfigError, match="is not an address"):
        Executors(wrong)


def failed(code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE, *, reason: str = "", **metadata: str) -> CallFailed:
    return CallFailed(code, "", reason=reason, fields={}, metadata=metadata, retry_after=None)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("practicum.client.route.PAUSE_SECONDS", 0.0)


def test_a_client_turns_as_nodes_do() -> None:
    """To the leader, or to the next; once for calls that failed together."""
    route = Route("a:1,b:2")
    assert route.turn("a:1", failed()) and route.address == "b:2"
    assert route.turn("a:1", failed()) and route.address == "b:2"
    assert route.turn("b:2", failed(reason="NOT_LEADER", leader="z:9")) and route.address == "z:9"
    assert route.turn("z:9", failed()) and route.address == "a:1"


def test_a_client_of_one_executor_turns_nowhere() -> None:
    """The caller decides whether to try again."""
    route = Route("a:1")
    assert not route.turn("a:1", failed())
    assert route.address == "a:1"


def test_a_standby_that_knows_no_leader_yet_is_asked_again() -> None:
    """Somebody leads soon, and it will know: also for a caller that was given no other address."""
    route = Route("a:1")
    assert route.turn("a:1", failed(reason="NOT_LEADER"))
    assert route.address == "a:1"
    assert route.turn("a:1", failed(reason="NOT_LEADER", leader="z:9"))
    assert route.turn("z:9", failed())
    assert route.address == "a:1"


def test_an_answer_is_no_reason_to_turn() -> None:
    """Who answers leads."""
    route = Route("a:1,b:2")
    assert not route.turn("a:1", failed(grpc.StatusCode.NOT_FOUND))
    assert route.address == "a:1"


def test_patience_ends_and_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """After so long without an answer a call fails; the next one is made with the same patience."""
    now = [1000.0]
    monkeypatch.setattr("practicum.client.route.time.monotonic", lambda: now[0])
    route = Route("a:1,b:2")
    assert route.turn(route.address, failed())
    now[0] += 29
    assert route.turn(route.address, failed())
    now[0] += 2
    assert not route.turn(route.address, failed())
    now[0] += 100
    assert route.turn(route.address, failed())
    route.reached()
    now[0] += 100
    assert route.turn(route.address, failed())
