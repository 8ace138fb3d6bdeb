"""Sessions of the gateway are opened, over gRPC and with real servers: what is given, and what is refused."""

from __future__ import annotations

import json

import grpc
import pytest
from support.gateway_door import Door, eventually, refused
from support.rough_gateway import door as door
from support.rough_gateway import gateway as gateway

from practicum.v1 import env_gateway_pb2 as pb
from practicum.v1 import task_pb2


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
