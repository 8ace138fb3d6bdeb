"""Tool calls through the gateway: results, progress, repeats, time limits, and servers that fail in the middle."""

from __future__ import annotations

import json
from collections.abc import Iterator

import grpc
import pytest
from support.gateway_door import ROUGH, Door, descendants, door_to, eventually, refused, write_catalogue
from support.services import Service, services_in

from practicum.v1 import env_gateway_pb2 as pb
from practicum.v1 import message_pb2

CATALOGUE = {
    "mcpServers": {"rough": ROUGH},
    "environments": {
        "rough": {"servers": ["rough"], "limits": {"grace_seconds": 0.3, "result_cap_bytes": 1000}},
        "hasty": {
            "servers": ["rough"],
            "limits": {"grace_seconds": 0.3, "call_idle_timeout_seconds": 0.4, "call_total_timeout_seconds": 1},
        },
        "generous": {"servers": ["rough"], "limits": {"result_cap_bytes": 30_000_000}},
    },
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("gateway")
    with services_in(folder) as services:
        yield services.start("env_gateway", "--catalogue", write_catalogue(folder, CATALOGUE))


@pytest.fixture
def door(gateway: Service) -> Iterator[Door]:
    """With a session `s` of the rough environment; afterwards no process is left."""
    with door_to(gateway) as door:
        door.open("s", "rough")
        yield door
        door.close_all()
        assert door.stats().open_sessions == door.stats().server_processes == 0
        assert len(descendants(gateway)) == 1


def test_a_call_is_accepted_then_reports_then_answers(door: Door) -> None:
    """In this order, and then the stream ends."""
    events = list(door.start_call("s", "rough__report", steps=3))
    assert [event.WhichOneof("event") for event in events] == ["accepted", *["progress"] * 3, "result"]
    assert [(event.progress.progress, event.progress.total, event.progress.message) for event in events[1:4]] == [
        (1, 3, "step 1"),
        (2, 3, "step 2"),
        (3, 3, "step 3"),
    ]
    assert (events[4].result.call_id, events[4].result.text, events[4].result.is_error) == ("c", "done", False)


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("rough__fail", "no such box"),
        ("rough__refuse", "not like this"),
        ("rough__nonsense", "the server's answer is not a tool result"),
    ],
)
def test_a_tool_that_fails_is_data_for_the_agent(door: Door, tool: str, said: str) -> None:
    """Not an error of the call: the agent reads it and goes on."""
    result = door.call("s", tool)
    assert result.is_error
    assert said in result.text
    assert door.call("s", "rough__count", call_id="next").text == "1"


def test_half_a_surrogate_pair_becomes_a_question_mark(door: Door) -> None:
    """Python servers write it without a word; neither UTF-8 nor protobuf can hold it."""
    assert door.call("s", "rough__half_pair").text == "?"


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": NaN}', "[" * 100_000, "7"])
def test_arguments_that_are_no_json_object_are_refused(door: Door, text: str) -> None:
    """Before the tool hears of them."""
    call = message_pb2.ToolCall(call_id="c", name="rough__count", arguments_json=text)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        list(door.stub.CallTool(pb.CallToolRequest(session_id=door.id("s"), attempt=1, call=call)))
    assert door.call("s", "rough__count").text == "1"


def test_empty_arguments_mean_none(door: Door) -> None:
    """Models call tools without parameters so."""
    call = message_pb2.ToolCall(call_id="c", name="rough__count")
    *_, last = door.stub.CallTool(pb.CallToolRequest(session_id=door.id("s"), attempt=1, call=call))
    assert last.result.text == "1"


def test_a_repeated_call_id_replays_and_never_runs_twice(door: Door) -> None:
    """The first answer was lost on its way, say."""
    first, *_, result = door.start_call("s", "rough__count")
    again, *_, replayed = door.start_call("s", "rough__count")
    assert (first.accepted.replayed, again.accepted.replayed) == (False, True)
    assert result.result == replayed.result
    assert door.call("s", "rough__count", call_id="2").text == "2"
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        door.call("s", "rough__echo", text="another call under the same id")


def test_a_repeat_joins_a_running_call_and_outlives_its_first_caller(door: Door) -> None:
    """The first stream is cut off; the second still gets the result."""
    first = door.start_call("s", "rough__report", steps=5, pause=0.1)
    next(first)
    second = door.start_call("s", "rough__report", steps=5, pause=0.1)
    assert next(second).accepted.replayed
    first.cancel()
    *_, last = second
    assert last.result.text == "done"


def test_several_calls_run_at_once(door: Door) -> None:
    """An answer goes to its own call, whatever the order."""
    waiting = door.start_call("s", "rough__wait", call_id="waits")
    next(waiting)
    assert [door.call("s", "rough__echo", call_id=str(i), text=str(i)).text for i in range(5)] == list("01234")
    waiting.cancel()


def test_big_results_are_cut_and_say_so(door: Door) -> None:
    """Never within a character; the full size is told."""
    whole = door.call("s", "rough__big", call_id="1", count=1000)
    assert (len(whole.text), whole.truncated, whole.full_size_bytes) == (1000, False, 1000)
    cut = door.call("s", "rough__big", call_id="2", count=600, letter="é")
    assert (cut.text, cut.truncated, cut.full_size_bytes) == ("é" * 500, True, 1200)


def test_ten_megabytes_pass_when_the_catalogue_allows(door: Door) -> None:
    """One line of JSON, far beyond the usual limits of line readers."""
    door.open("g", "generous")
    result = door.call("g", "rough__big", count=10_000_000)
    assert (len(result.text), result.truncated) == (10_000_000, False)


def test_a_message_beyond_all_measure_loses_the_session(door: Door) -> None:
    """So that one server can't take the gateway's memory."""
    door.open("g", "generous")
    with refused(grpc.StatusCode.UNAVAILABLE, "TOOL_SERVER_LOST") as info:
        door.call("g", "rough__big", count=70_000_000)
    assert "more than 67108864 bytes" in info[0].metadata["detail"]
    assert door.state("g").state == pb.SESSION_STATE_LOST


def test_a_silent_tool_ends_at_the_idle_limit_and_the_session_goes_on(door: Door) -> None:
    """The server is told to cancel and still answers: nothing is lost."""
    door.open("h", "hasty")
    with refused(grpc.StatusCode.DEADLINE_EXCEEDED, "TOOL_TIMEOUT") as info:
        door.call("h", "rough__wait")
    assert "was silent for 0.4 s" in info[0].metadata["detail"]
    assert info[0].metadata["dispatched"] == "true"
    assert door.call("h", "rough__count", call_id="2").text == "1"


def test_progress_puts_the_idle_limit_off_but_not_the_total(door: Door) -> None:
    """A tool that reports forever still ends."""
    door.open("h", "hasty")
    assert door.call("h", "rough__report", call_id="1", steps=4, pause=0.15).text == "done"
    with refused(grpc.StatusCode.DEADLINE_EXCEEDED, "TOOL_TIMEOUT") as info:
        door.call("h", "rough__report", call_id="2", steps=8, pause=0.15)
    assert "took 1 s" in info[0].metadata["detail"]


def test_a_caller_may_shorten_the_limit(door: Door) -> None:
    """Not lengthen it."""
    with refused(grpc.StatusCode.DEADLINE_EXCEEDED, "TOOL_TIMEOUT") as info:
        door.call("s", "rough__wait", timeout=0.2)
    assert "took 0.2 s" in info[0].metadata["detail"]
    door.open("h", "hasty")
    with refused(grpc.StatusCode.DEADLINE_EXCEEDED, "TOOL_TIMEOUT"):
        door.call("h", "rough__wait", timeout=3600)


def test_a_server_that_does_not_let_go_of_a_call_is_killed(door: Door) -> None:
    """Nothing that it does from then on could be relied on."""
    door.open("h", "hasty")
    with refused(grpc.StatusCode.DEADLINE_EXCEEDED, "TOOL_TIMEOUT"):
        door.call("h", "rough__hang")
    assert "did not let go" in door.state("h").lost_reason
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_LOST"):
        door.call("h", "rough__count", call_id="2")
    assert eventually(lambda: door.stats().server_processes == 1)


def test_a_server_that_reads_nothing_is_killed_too(door: Door) -> None:
    """Big arguments fill the pipe; neither they nor the ping get through."""
    door.open("h", "hasty")
    hanging = door.start_call("h", "rough__hang", call_id="1")
    next(hanging)
    with refused(grpc.StatusCode.DEADLINE_EXCEEDED, "TOOL_TIMEOUT"):
        door.call("h", "rough__echo", call_id="2", text="x" * 4_000_000)
    with pytest.raises(grpc.RpcError):
        list(hanging)
    assert eventually(lambda: door.state("h").state == pb.SESSION_STATE_LOST)


def test_a_cancelled_call_is_cancelled_at_the_server_and_the_session_goes_on(door: Door) -> None:
    """Its caller left; a repeat is told so and does not run it again."""
    call = door.start_call("s", "rough__wait")
    next(call)
    call.cancel()

    def told() -> bool:
        try:
            door.call("s", "rough__wait", timeout=5)
        except grpc.RpcError as error:
            return error.code() == grpc.StatusCode.CANCELLED
        return False

    assert told()
    assert door.call("s", "rough__count", call_id="2").text == "1"


def test_a_crash_in_the_middle_of_a_call_is_told_at_once(door: Door) -> None:
    """With what the server said last, and that the call may have happened."""
    other = door.start_call("s", "rough__wait", call_id="other")
    next(other)
    with refused(grpc.StatusCode.UNAVAILABLE, "TOOL_SERVER_LOST") as info:
        door.call("s", "rough__crash")
    assert info[0].metadata["dispatched"] == "true"
    with refused(grpc.StatusCode.UNAVAILABLE, "TOOL_SERVER_LOST"):
        list(other)
    found = door.state("s")
    assert found.state == pb.SESSION_STATE_LOST
    assert "segmentation fault, sort of" in found.lost_reason
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_LOST"):
        door.call("s", "rough__count", call_id="2")
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_LOST"):
        door.open("s", "rough")
    assert eventually(lambda: door.stats().server_processes == 0)
    assert not door.open("s", "rough", attempt=2, resume=True).resumed
    assert door.call("s", "rough__count", attempt=2).text == "1"


def test_a_crash_between_calls_loses_the_session(gateway: Service, door: Door) -> None:
    """Nobody waited for it; it is noticed all the same."""
    before = door.stats().lost_total
    (server,) = [process for process in descendants(gateway) if process.name().startswith("env-")]
    server.kill()
    assert eventually(lambda: door.state("s").state == pb.SESSION_STATE_LOST)
    assert door.stats().lost_total == before + 1


def test_closing_ends_running_calls(door: Door) -> None:
    """As lost: it may have happened."""
    call = door.start_call("s", "rough__wait")
    next(call)
    door.close("s")
    with refused(grpc.StatusCode.UNAVAILABLE, "TOOL_SERVER_LOST") as info:
        list(call)
    assert info[0].metadata["dispatched"] == "true"


def test_results_may_be_long_in_coming_for_many_sessions_at_once(door: Door) -> None:
    """Twenty sessions with a call each in flight, answered each with its own."""
    calls = {}
    for number in range(20):
        door.open(f"m{number}", "rough")
        calls[number] = door.start_call(f"m{number}", "rough__report", steps=number, pause=0.01)
    for number, call in calls.items():
        events = list(call)
        assert len(events) == number + 2
        assert events[-1].result.text == "done"
    assert json.loads(door.call("m3", "rough__look", call_id="2").text)["folder"]


def test_every_call_ends_when_servers_are_killed_during_calls(gateway: Service, door: Door) -> None:
    """Each with its answer or as lost, never with another's; sessions whose server lives go on."""
    before = {process.pid for process in descendants(gateway)}
    calls = {}
    for number in range(20):
        door.open(f"k{number}", "rough")
        calls[number] = door.start_call(f"k{number}", "rough__report", steps=5, pause=0.1)
        next(calls[number])
    servers = [process for process in descendants(gateway) if process.pid not in before]
    assert len(servers) == 20
    for server in servers[::5]:
        server.kill()
    for call in calls.values():
        try:
            assert list(call)[-1].result.text == "done"
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.UNAVAILABLE
    assert eventually(lambda: sum(door.state(f"k{number}").state == pb.SESSION_STATE_LOST for number in calls) == 4)
    for number in calls:
        if door.state(f"k{number}").state == pb.SESSION_STATE_READY:
            assert door.call(f"k{number}", "rough__count", call_id="2").text == "1"
