"""Servers that others wrote, in Python and in TypeScript, over real stdio."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gateway_door import Door, door_to
from support.services import Services

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def tool_servers() -> None:
    """Installs them; nothing to do when they are there."""
    subprocess.run([ROOT / "scripts/install_tool_servers.sh"], check=True, timeout=280)


@pytest.fixture
def door(services: Services, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    monkeypatch.chdir(ROOT)
    gateway = services.start("env_gateway", "--catalogue", "environments/third_party.json")
    with door_to(gateway) as door:
        yield door
        door.close_all()
        assert door.stats().server_processes == 0


def test_time_converts_between_zones(door: Door) -> None:
    """mcp-server-time, in its own virtual environment."""
    tools = [tool.name for tool in door.open("s", "time").tools]
    assert tools == ["time__convert_time", "time__get_current_time"]
    result = door.call(
        "s", "time__convert_time", source_timezone="Asia/Tokyo", time="16:30", target_timezone="Asia/Kolkata"
    )
    assert "13:00" in result.text
    assert door.call("s", "time__get_current_time", call_id="2", timezone="Nowhere/Land").is_error


def test_git_tells_of_a_repository(door: Door, tmp_path: Path) -> None:
    """mcp-server-git, which starts git processes itself."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "note.txt").write_text("hello")
    door.open("s", "git")
    assert "note.txt" in door.call("s", "git__git_status", repo_path=str(tmp_path)).text


@pytest.mark.skipif(shutil.which("npm") is None, reason="server-everything needs Node and npm")
def test_everything_reports_progress_and_shows_images(door: Door) -> None:
    """server-everything, the reference server in TypeScript."""
    door.open("s", "everything")
    assert door.call("s", "everything__echo", call_id="1", message="hello").text == "Echo: hello"
    events = list(door.start_call("s", "everything__trigger-long-running-operation", call_id="2", duration=1, steps=4))
    assert [event.progress.progress for event in events if event.HasField("progress")] == [1, 2, 3, 4]
    assert "[image image/png, " in door.call("s", "everything__get-tiny-image", call_id="3").text
    structured = door.call("s", "everything__get-structured-content", call_id="4", location="Chicago")
    assert '"temperature"' in structured.structured_json
