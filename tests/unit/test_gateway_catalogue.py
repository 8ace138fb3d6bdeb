"""The catalogue: what people write, and what they are told when it is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from practicum.common.errors import ConfigError
from practicum.env_gateway.catalogue import Limits, load, parse

ROOT = Path(__file__).parents[2]
BOX = {"command": "box"}


def with_environment(**environment: Any) -> dict[str, Any]:
    """A catalogue of the server `box` with one environment `e` on it."""
    return {"mcpServers": {"box": BOX}, "environments": {"e": {"servers": ["box"], **environment}}}


def test_the_bundled_catalogues_are_good() -> None:
    """The quickstart's has the game, forked; the other the servers of third parties."""
    boxes = load(ROOT / "environments/catalogue.json")["boxes"]
    (box,) = boxes.servers
    assert box.argv == (sys.executable, "-m", "practicum.environments.boxes")
    assert box.fork == "practicum.environments.boxes.server:main"
    assert boxes.tools == {"box__open"}
    assert set(load(ROOT / "environments/third_party.json")) == {"time", "git", "everything"}


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
def test_the_ecosystems_form_is_taken_as_it_is(key: str) -> None:
    """Each server alone is an environment, as in Claude Desktop's or VS Code's file."""
    server = {"type": "stdio", "command": "/bin/box", "args": ["-v", "${LEVEL}"], "env": {"KEY": "${TOKEN}!"}}
    environments = parse({key: {"box": server}}, {"LEVEL": "2", "TOKEN": "secret"})
    (box,) = environments["box"].servers
    assert (box.argv, box.environment, box.folder, box.fork) == (("/bin/box", "-v", "2"), {"KEY": "secret!"}, None, "")
    assert environments["box"].limits == Limits()
    assert environments["box"].tools is None


def test_an_environment_chooses_servers_tools_limits_and_a_scorer() -> None:
    """All keys at once."""
    catalogue = with_environment(
        description="boxes", tools=["box__open"], isolation="process", scorer="gaia", limits={"idle_ttl_seconds": 5}
    )
    environment = parse(catalogue, {})["e"]
    assert (environment.description, environment.scorer) == ("boxes", "gaia")
    assert environment.tools == {"box__open"}
    assert environment.limits == Limits(idle_ttl_seconds=5)


@pytest.mark.parametrize(
    ("catalogue", "said"),
    [
        ([], "the catalogue: give a JSON object"),
        ({}, "give the servers under `mcpServers`"),
        ({"mcpServers": {}, "servers": {}}, "under one of the two"),
        ({"mcpServers": {}, "server": {}}, "unknown key 'server'; known are environments, mcpServers, servers"),
        ({"mcpServers": []}, "mcpServers: give a JSON object"),
        ({"mcpServers": {"a b": BOX}}, "mcpServers.a b: a server's name is part of its tools' names"),
        ({"mcpServers": {"a": 7}}, "mcpServers.a: give a JSON object"),
        ({"mcpServers": {"a": {"args": []}}}, "mcpServers.a.command: give a text; it is missing"),
        ({"mcpServers": {"a": BOX | {"comand": "x"}}}, "mcpServers.a: unknown key 'comand'"),
        ({"mcpServers": {"a": BOX | {"args": "-v"}}}, "mcpServers.a.args: give a list of texts"),
        ({"mcpServers": {"a": BOX | {"env": {"PORT": 1}}}}, "mcpServers.a.env: give an object of texts"),
        ({"mcpServers": {"a": BOX | {"cwd": "here"}}}, "mcpServers.a.cwd: here is not absolute"),
        ({"mcpServers": {"a": {"command": "bin/a"}}}, "write ${workspaceFolder}/bin/a"),
        ({"mcpServers": {"a": BOX | {"args": ["${NOPE}"]}}}, "mcpServers.a.args: variable 'NOPE' is not set"),
        ({"mcpServers": {"a": BOX | {"fork": "module"}}}, "mcpServers.a.fork: 'module' is not module:function"),
        ({"mcpServers": {"a": {"type": "streamable-http", "url": "x"}}}, "streamable-http servers are not taken"),
        (
            {"mcpServers": {"a": {"type": "carrier pigeon"}}},
            "mcpServers.a.type: 'carrier pigeon' is unknown; give stdio",
        ),
        (with_environment(servers=["bx"]), "environments.e.servers: no server 'bx'; there are box"),
        (with_environment(servers=[]), "environments.e.servers: name at least one server, each once"),
        (with_environment(servers=["box", "box"]), "environments.e.servers: name at least one server, each once"),
        (with_environment(isolation="none"), "environments.e.isolation: 'none' is not taken in this release"),
        (with_environment(scorer="vibes"), "'vibes' is unknown; give one of exact, gaia, gaia-published"),
        (with_environment(tools=["open"]), "environments.e.tools: 'open' is not a tool's full name"),
        (with_environment(limits={"idle": 1}), "environments.e.limits: unknown key 'idle'"),
        (
            with_environment(limits={"grace_seconds": 0}),
            "environments.e.limits.grace_seconds: 0 is not a positive number",
        ),
        (with_environment(limits={"grace_seconds": True}), "True is not a positive number"),
        (with_environment(limits={"grace_seconds": "1"}), "'1' is not a positive number"),
        (with_environment(limits={"result_cap_bytes": 1.5}), "1.5 is not a positive number"),
    ],
)
def test_what_is_wrong_is_named_with_its_key(catalogue: Any, said: str) -> None:
    """And, where it can be said, with what would be right."""
    with pytest.raises(ConfigError) as caught:
        parse(catalogue, {})
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON: Expecting property name"),
        ("[" * 100_000, "is not JSON: maximum recursion depth"),
        ("\xff", "is not JSON: 'utf-8' codec"),
        ('{"mcpServers": 7}', "mcpServers: give a JSON object"),
    ],
)
def test_errors_name_the_file(tmp_path: Path, text: str, said: str) -> None:
    """Since a machine may hold many."""
    path = tmp_path / "mine.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert f"catalogue {path}" in str(caught.value)
    assert said in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """With the flag that names it."""
    with pytest.raises(ConfigError, match=r"No such file or directory; pass --catalogue PATH"):
        load(tmp_path / "none.json")


def test_the_start_folder_and_the_interpreter_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session has a folder of its own, so relative paths would lead nowhere."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"mcpServers": {"a": {"command": "${PYTHON}", "args": ["${workspaceFolder}/a.py"]}}}))
    assert load(path)["a"].servers[0].argv == (sys.executable, f"{tmp_path}/a.py")
