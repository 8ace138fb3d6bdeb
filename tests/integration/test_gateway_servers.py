"""The servers of a session of the gateway, real ones: what they see, how they fail, and that none is left."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import psutil
import pytest
from support.gateway_door import Door, gone, refused
from support.rough_gateway import door as door
from support.rough_gateway import gateway as gateway


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
