"""The gateway as a process: how it refuses to start, and that no server outlives it, however it ends."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from support.gateway_door import ROUGH, Door, descendants, door_to, eventually, gone, refused, write_catalogue
from support.services import Service, Services, serving

from practicum.v1 import env_gateway_pb2 as pb

SERVERS = {
    "forked": ROUGH,
    "fresh": {key: value for key, value in ROUGH.items() if key != "fork"} | {"env": {"PYTHONPATH": "tests"}},
    "sdk": {"command": "${PYTHON}", "args": ["-m", "support.sdk_server"], "fork": "support.sdk_server:main"},
    "absent": {"command": "no-such-program"},
}


@pytest.fixture
def gateway(services: Services, tmp_path: Path) -> Service:
    servers = json.loads(json.dumps(SERVERS).replace('"tests"', json.dumps(str(Path(__file__).parents[1]))))
    return services.start("env_gateway", "--catalogue", write_catalogue(tmp_path, {"mcpServers": servers}))


def busy(door: Door, gateway: Service) -> list[psutil.Process]:
    """Two sessions with servers that started more processes; all that come from the gateway."""
    for session in ("forked", "fresh"):
        door.open(session, session, start="stubborn")
        pids = json.loads(door.call(session, f"{session}__spawn").text)
    found = descendants(gateway)
    assert set(pids) <= {process.pid for process in found}
    assert len(found) == 9, "the launcher, two servers, three processes of each"
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_gateway_that_is_told_to_stop_leaves_no_server_behind(gateway: Service, number: signal.Signals) -> None:
    """SIGTERM, or Ctrl-C: sessions close first, and it ends with 0."""
    with door_to(gateway) as door:
        left = busy(door, gateway)
    assert gateway.process is not None
    gateway.process.send_signal(number)
    assert gateway.process.wait(30) == 0
    assert gone(left, within=1)


def test_a_gateway_that_is_killed_leaves_no_server_behind(gateway: Service) -> None:
    """kill -9: the launcher sees that it is gone and ends everything."""
    with door_to(gateway) as door:
        left = busy(door, gateway)
    gateway.kill()
    assert gone(left)


def test_a_gateway_stops_while_a_session_opens(gateway: Service) -> None:
    """Nothing waits for a server that says nothing."""
    with door_to(gateway) as door:
        opening = door.stub.OpenSession.future(
            pb.OpenSessionRequest(
                session_id="s", attempt=1, environment={"name": "forked", "parameters_json": '{"start": "mute"}'}
            )
        )
        assert eventually(lambda: door.stats().server_processes == 1)
        left = descendants(gateway)
        assert gateway.stop() == 0
        with pytest.raises(grpc.RpcError):
            opening.result()
    assert gone(left, within=1)


def test_a_launcher_that_dies_loses_its_sessions_and_is_replaced(gateway: Service) -> None:
    """The next session opens as if nothing had happened."""
    with door_to(gateway) as door:
        door.open("s", "forked")
        (launcher,) = psutil.Process(gateway.pid).children()
        launcher.kill()
        assert eventually(lambda: door.state("s").state == pb.SESSION_STATE_LOST)
        door.close("s")
        door.open("t", "forked")
        assert door.call("t", "forked__echo", text="hello").text == "hello"
        door.close("t")
        assert door.stats().server_processes == 0
    assert gateway.stop() == 0


def test_a_server_process_and_a_fork_of_it_do_the_same(gateway: Service) -> None:
    """`fork` is only faster."""
    with door_to(gateway) as door:
        for session in ("forked", "fresh"):
            door.open(session, session)
            assert door.call(session, f"{session}__count").text == "1"
            seen = json.loads(door.call(session, f"{session}__look", call_id="2").text)
            assert Path(seen["folder"]).name == "workspace"
            door.close(session)


def test_a_server_on_the_mcp_sdk_can_be_forked(gateway: Service) -> None:
    """Its module is loaded once, with the SDK; each session counts for itself."""
    with door_to(gateway) as door:
        for session in ("a", "b"):
            (tool,) = door.open(session, "sdk").tools
            assert (tool.name, tool.description) == ("sdk__increment", "Adds to this session's counter.")
            assert door.call(session, "sdk__increment", call_id="1", by=2).text == "2"
            assert door.call(session, "sdk__increment", call_id="2").text == "3"
            assert door.call(session, "sdk__increment", call_id="3", by="many").is_error
            door.close(session)


def test_a_command_that_does_not_exist_is_told_when_a_session_opens(gateway: Service) -> None:
    """By its name, in the error."""
    with door_to(gateway) as door, refused(grpc.StatusCode.UNAVAILABLE, "ENVIRONMENT_OPEN_FAILED") as info:
        door.open("s", "absent")
    assert "can't run no-such-program" in info[0].metadata["detail"]


@pytest.mark.parametrize(
    ("catalogue", "said"),
    [
        ({"mcpServers": {"a": {}}}, "mcpServers.a.command: give a text; it is missing"),
        (
            {"mcpServers": {"a": {"url": "http://x/mcp"}}},
            "mcpServers.a.type: http servers are not taken in this release",
        ),
        ({"mcpServers": {"a": ROUGH | {"fork": "no_such_module:main"}}}, "no_such_module:main: ModuleNotFoundError"),
        ({"mcpServers": {"a": ROUGH | {"fork": "support.rough_server:no"}}}, "support.rough_server:no: AttributeError"),
        (
            {"mcpServers": {"a": ROUGH | {"fork": "support.rough_server:SLEEP"}}},
            "support.rough_server:SLEEP: is no function",
        ),
    ],
)
def test_a_catalogue_that_is_wrong_is_refused_in_one_sentence(
    services: Services, tmp_path: Path, catalogue: Any, said: str
) -> None:
    """Exit status 2, no traceback, nothing left running."""
    path = write_catalogue(tmp_path, catalogue)
    gateway = services.start("env_gateway", "--catalogue", path, wait=False)
    assert gateway.process is not None
    assert gateway.process.wait(30) == 2
    assert gateway.text.startswith("error: ")
    assert said in gateway.text
    assert len(gateway.text.splitlines()) == 1


@pytest.mark.parametrize(
    ("flags", "said"), [(["--max-sessions", "0"], "give 1 or more"), ([], "pass --catalogue PATH")]
)
def test_wrong_flags_are_refused_in_one_sentence(services: Services, flags: list[str], said: str) -> None:
    """As catalogues are."""
    path = "environments/catalogue.json" if flags else "/no/such/file.json"
    gateway = services.start("env_gateway", "--catalogue", path, *flags, wait=False)
    assert gateway.process is not None
    assert gateway.process.wait(30) == 2
    assert said in gateway.text
    assert len(gateway.text.splitlines()) == 1


def test_a_port_in_use_is_told(services: Services, gateway: Service) -> None:
    """The second gateway ends; the first goes on."""
    second = Service(
        "env_gateway", gateway.address, ["--catalogue", "environments/catalogue.json"], services.folder / "2.log"
    )
    services.started.append(second)
    second.launch()
    assert second.process is not None
    assert second.process.wait(30) == 2
    assert "port is in use" in second.text
    assert "Traceback" not in second.text
    assert serving(gateway.address)


def test_folders_of_a_killed_gateway_are_removed_by_the_next(
    services: Services, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those of a gateway that lives stay."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    catalogue = ["--catalogue", write_catalogue(tmp_path, {"mcpServers": {"forked": ROUGH}})]
    killed, other = (services.start("env_gateway", *catalogue) for _ in range(2))
    with door_to(killed) as door:
        door.open("s", "forked")
    with door_to(other) as door:
        door.open("s", "forked")
    assert len(list(tmp_path.glob("practicum-gateway-*/session-*"))) == 2
    killed.kill()
    killed.launch()
    killed.wait_serving()
    assert len(list(tmp_path.glob("practicum-gateway-*/session-*"))) == 1
