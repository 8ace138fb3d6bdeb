"""Sessions of the gateway, over gRPC and with real servers: who owns one, what its servers see, how it ends."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest
from support.gateway_door import ROUGH, Door, descendants, door_to, eventually, gone, refused, write_catalogue
from support.services import Service, services_in

from practicum.v1 import env_gateway_pb2 as pb
from practicum.v1 import message_pb2, task_pb2

CATALOGUE = {
    "mcpServers": {"rough": ROUGH, "other": ROUGH},
    "environments": {
        "rough": {"servers": ["rough"], "limits": {"grace_seconds": 0.3, "open_timeout_seconds": 1}},
        "both": {"servers": ["rough", "other"]},
        "few": {"servers": ["rough"], "tools": ["rough__echo", "rough__count"]},
        "brief": {"servers": ["rough"], "limits": {"idle_ttl_seconds": 0.4, "grace_seconds": 0.2}},
        "short": {"servers": ["rough"], "limits": {"absolute_ttl_seconds": 0.4, "grace_seconds": 0.2}},
    },
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("gateway")
    with services_in(folder) as services, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SECRET_TOKEN", "hunter2")
        yield services.start("env_gateway", "--catalogue", write_catalogue(folder, CATALOGUE), "--max-sessions", "8")


@pytest.fixture
def door(gateway: Service) -> Iterator[Door]:
    """Each test leaves no session, no process and no folder behind."""
    with door_to(gateway) as door:
        yield door
        door.close_all()
        assert door.stats().open_sessions == door.stats().server_processes == 0
        assert len(descendants(gateway)) == 1, "besides the launcher nothing is left"


def test_environments_are_listed_by_name(door: Door) -> None:
    """The catalogue as clients see it."""
    listed = door.stub.ListEnvironments(pb.ListEnvironmentsRequest()).environments
    assert [(one.name, list(one.servers), one.isolation) for one in listed] == [
        ("both", ["rough", "other"], "process"),
        *((name, ["rough"], "process") for name in ("brief", "few", "rough", "short")),
    ]


def test_each_session_has_a_server_of_its_own(door: Door) -> None:
    """What one agent does, another does not see."""
    for session in ("a", "b"):
        door.open(session, "rough")
    assert [door.call("a", "rough__count", call_id=str(i)).text for i in range(3)] == ["1", "2", "3"]
    assert door.call("b", "rough__count").text == "1"
    for session in ("a", "b"):
        door.close(session)


def test_an_environment_of_two_servers_has_the_tools_of_both(door: Door) -> None:
    """Names tell them apart, and all pages of a list are read."""
    tools = door.open("s", "both").tools
    names = [tool.name for tool in tools]
    assert {"rough__echo", "other__echo", "rough__wait", "other__wait"} <= set(names)
    assert names == sorted(names)
    assert json.loads(tools[0].input_schema_json) == {"type": "object"}
    assert door.call("s", "other__echo", text="hello").text == "hello"
    listed = door.stub.ListTools(pb.ListToolsRequest(session_id=door.id("s"), attempt=1)).tools
    assert list(listed) == list(tools)
    door.close("s")


def test_catalogue_and_task_choose_tools_and_servers(door: Door) -> None:
    """The task can narrow what the catalogue allows, never widen it."""
    assert [tool.name for tool in door.open("a", "few").tools] == ["rough__count", "rough__echo"]
    assert [tool.name for tool in door.open("b", "few", allowed_tools=["rough__echo"]).tools] == ["rough__echo"]
    assert not door.open("c", "few", hide_tools=True).tools
    assert all(tool.name.startswith("other__") for tool in door.open("d", "both", servers=["other"]).tools)
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as info:
        door.open("e", "few", allowed_tools=["rough__big"])
    assert "there are: rough__count, rough__echo" in info[0].metadata["detail"]
    with refused(grpc.StatusCode.NOT_FOUND, "TOOL_UNKNOWN") as info:
        door.call("b", "rough__count")
    assert info[0].metadata["known"] == "rough__echo"
    for session in "abcd":
        door.close(session)


def test_unknown_names_are_refused_with_the_known_ones(door: Door) -> None:
    """So that a caller can mend the request."""
    with refused(grpc.StatusCode.NOT_FOUND, "ENVIRONMENT_UNKNOWN") as info:
        door.open("s", "chess")
    assert info[0].metadata["known"] == "both, brief, few, rough, short"
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        door.open("s", "both", servers=["third"])
    with refused(grpc.StatusCode.NOT_FOUND, "SESSION_UNKNOWN"):
        door.call("s", "rough__echo")
    door.close("never opened")


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": "\\u0000"} \0', "[" * 100_000, json.dumps({"a": "x" * 70_000})])
def test_parameters_that_no_environment_takes_are_refused(door: Door, text: str) -> None:
    """Before any server starts."""
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        door.open("s", "rough", parameters_json=text)


def test_requests_without_ids_are_refused(door: Door) -> None:
    """Each names its field."""
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        door.open("", "rough")
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        door.open("s", "rough", attempt=0)
    door.open("s", "rough")
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        door.call("s", "rough__count", call_id="")
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        door.call("s", "rough__count", timeout=-1)
    door.close("s")


def test_an_open_may_be_repeated(door: Door) -> None:
    """The answer was lost on its way, say: the same environment is found."""
    first = door.open("s", "rough")
    door.call("s", "rough__count")
    assert list(door.open("s", "rough").tools) == list(first.tools)
    assert door.call("s", "rough__count", call_id="2").text == "2"
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD"):
        door.open("s", "both")
    door.close("s")


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


def test_servers_see_their_own_folder_and_none_of_the_gateways_secrets(door: Door) -> None:
    """Neither in their environment nor in what /proc shows of it, though they are forks."""
    door.open("s", "rough", parameters_json='{"depth": 3}')
    seen = json.loads(door.call("s", "rough__look").text)
    assert seen["environment"]["PRACTICUM_ENVIRONMENT_PARAMETERS"] == '{"depth": 3}'
    assert seen["environment"]["HOME"] == seen["folder"]
    assert "SECRET_TOKEN" not in seen["environment"]
    assert "hunter2" not in seen["born_with"]
    door.close("s")
    assert not Path(seen["folder"]).exists()


def test_a_littered_folder_is_removed_with_its_session(door: Door) -> None:
    """Whatever servers wrote there."""
    door.open("s", "rough")
    folder = Path(door.call("s", "rough__litter").text)
    assert (folder / "note.txt").exists()
    door.close("s")
    assert not folder.parent.exists()


def test_a_close_sweeps_whatever_a_server_started(door: Door) -> None:
    """Children in its group, daemons that left it, and forks that never became another program."""
    door.open("s", "rough")
    started = [psutil.Process(pid) for pid in json.loads(door.call("s", "rough__spawn").text)]
    door.close("s")
    # They are killed by then; who inherited them may take a moment to see it.
    assert gone(started, within=5)


def test_a_stubborn_server_is_killed_after_its_grace(door: Door) -> None:
    """It ignores the end of its input and SIGTERM; close answers when it is gone."""
    door.open("s", "rough", start="stubborn")
    door.close("s")
    assert door.stats().server_processes == 0


@pytest.mark.parametrize(
    ("start", "said"),
    [("mute", "did not answer within 1 s"), ("crash", "its process ended; it said: boom")],
)
def test_a_server_that_does_not_open_is_told_and_the_id_stays_free(door: Door, start: str, said: str) -> None:
    """What it wrote last on stderr is in the error; the same attempt may be tried again."""
    with refused(grpc.StatusCode.UNAVAILABLE, "ENVIRONMENT_OPEN_FAILED") as info:
        door.open("s", "rough", start=start)
    assert said in info[0].metadata["detail"] or "closed its output; it said: boom" in info[0].metadata["detail"]
    assert info[0].metadata["server"] == "rough"
    door.open("s", "rough")
    door.close("s")
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "SESSION_CLOSED"):
        door.open("s", "rough")
    door.open("s", "rough", attempt=2)
    door.close("s", attempt=2)


def test_a_server_refuses_parameters_with_exit_code_65(door: Door) -> None:
    """Then it is the caller's mistake, in the server's words."""
    with refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD") as info:
        door.open("s", "rough", start="refuse")
    assert "not to my taste" in info[0].metadata["detail"]


def test_stray_prints_on_stdout_are_passed_over(door: Door) -> None:
    """Before, between and after messages."""
    door.open("s", "rough", start="garbage")
    assert door.call("s", "rough__chatter").text == "said"
    assert door.call("s", "rough__echo", call_id="2", text="still there").text == "still there"
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


def test_more_sessions_than_there_is_room_for_are_refused_for_now(door: Door) -> None:
    """And let in when another has closed."""
    for number in range(8):
        door.open(str(number), "rough")
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "ADMISSION"):
        door.open("8", "rough")
    door.open("7", "rough", attempt=2)
    door.close("0")
    door.open("8", "rough")
    for number in range(1, 9):
        door.close(str(number), attempt=2 if number == 7 else 1)


def test_closing_during_the_open_leaves_nothing(door: Door) -> None:
    """A rollout may be cancelled while its environment is on its way."""
    request = pb.OpenSessionRequest(
        session_id=door.id("s"),
        attempt=1,
        environment=task_pb2.EnvironmentSpec(name="both", parameters_json='{"start": "mute"}'),
    )
    opening = door.stub.OpenSession.future(request)
    assert eventually(lambda: door.stats().server_processes > 0)
    door.close("s")
    assert door.state("s").state == pb.SESSION_STATE_CLOSED
    with refused(grpc.StatusCode.UNAVAILABLE, "ENVIRONMENT_OPEN_FAILED"):
        opening.result()


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
