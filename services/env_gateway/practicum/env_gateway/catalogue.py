"""What can be opened: MCP servers in the form that the ecosystem writes them, and environments made of them."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from practicum.common.errors import ConfigError
from practicum.env_gateway.fields import Json, expand, table, text, texts
from practicum.env_gateway.scorers import SCORERS

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
FORK = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
SERVER_KEYS = {"type", "command", "args", "env", "cwd", "fork"}
ENVIRONMENT_KEYS = {"description", "servers", "isolation", "tools", "limits", "scorer"}
REMOTE_TYPES = {"http", "streamable-http", "streamable_http", "sse"}


@dataclass(frozen=True, slots=True)
class Limits:
    """What an environment's sessions may take. All but the cap are seconds."""

    open_timeout_seconds: float = 30.0
    call_idle_timeout_seconds: float = 60.0
    call_total_timeout_seconds: float = 300.0
    # How long a server may take to obey: a cancel, the end of its input, SIGTERM.
    grace_seconds: float = 2.0
    # Longer than the executor's lease and its back-off together, so that a resumed attempt finds its session.
    idle_ttl_seconds: float = 300.0
    absolute_ttl_seconds: float = 7_200.0
    result_cap_bytes: int = 256 * 1024


@dataclass(frozen=True, slots=True)
class Server:
    """How an MCP server is started. With `fork` (`module:function`) it is a fork of the preloaded module instead."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    fork: str = ""


@dataclass(frozen=True, slots=True)
class Environment:
    """Servers under one name. `tools`: full names that agents may call; None means all."""

    name: str
    servers: tuple[Server, ...]
    description: str = ""
    isolation: str = "process"
    tools: frozenset[str] | None = None
    limits: Limits = field(default_factory=Limits)
    scorer: str = "exact"


def load(path: Path, variables: Mapping[str, str] = os.environ) -> dict[str, Environment]:
    """Reads a catalogue. ConfigError names the file, the key, and what would be right.

    `${VAR}` is taken from `variables`; besides, `${PYTHON}` is the interpreter that runs the gateway, and
    `${workspaceFolder}`, as in VS Code, the folder that it was started in.
    """
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"can't read the catalogue {path}: {error.strerror}; pass --catalogue PATH") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"catalogue {path} is not JSON: {error}") from error
    try:
        return parse(document, {**variables, "PYTHON": sys.executable, "workspaceFolder": str(Path.cwd())})
    except ConfigError as error:
        raise ConfigError(f"catalogue {path}: {error}") from error


def parse(document: Any, variables: Mapping[str, str]) -> dict[str, Environment]:
    """The environments of a catalogue's JSON, by name. Without an `environments` section each server is one."""
    top = table(document, "the catalogue", {"mcpServers", "servers", "environments"})
    if ("mcpServers" in top) == ("servers" in top):
        raise ConfigError("give the servers under `mcpServers` (or `servers`, as VS Code does), under one of the two")
    key = "mcpServers" if "mcpServers" in top else "servers"
    servers = {name: server(name, value, f"{key}.{name}", variables) for name, value in table(top[key], key).items()}
    if "environments" not in top:
        return {name: Environment(name, (known,)) for name, known in servers.items()}
    return {
        name: environment(name, value, servers) for name, value in table(top["environments"], "environments").items()
    }


def server(name: str, value: Any, key: str, variables: Mapping[str, str]) -> Server:
    """One entry of `mcpServers`."""
    if not SERVER_NAME.fullmatch(name):
        raise ConfigError(f"{key}: a server's name is part of its tools' names, so it must match {SERVER_NAME.pattern}")
    kind = value.get("type", "http" if "url" in value else "stdio") if isinstance(value, dict) else "stdio"
    if kind in REMOTE_TYPES:
        raise ConfigError(f"{key}.type: {kind} servers are not taken in this release; give a stdio server's command")
    if kind != "stdio":
        raise ConfigError(f"{key}.type: {kind!r} is unknown; give stdio")
    entry = expand(table(value, key, SERVER_KEYS), key, variables)
    command = text(entry, "command", key)
    if "/" in command and not Path(command).is_absolute():
        raise ConfigError(
            f"{key}.command: {command} is relative, and each session has a folder of its own; "
            f"write ${{workspaceFolder}}/{command}"
        )
    fork = text(entry, "fork", key, default="")
    if fork and not FORK.fullmatch(fork):
        raise ConfigError(f"{key}.fork: {fork!r} is not module:function, such as my_package.server:main")
    folder = Path(text(entry, "cwd", key)) if "cwd" in entry else None
    if folder is not None and not folder.is_absolute():
        raise ConfigError(f"{key}.cwd: {folder} is not absolute; leave it out for a fresh folder per session")
    environment = entry.get("env", {})
    if not isinstance(environment, dict) or not all(isinstance(item, str) for item in environment.values()):
        raise ConfigError(f"{key}.env: give an object of texts")
    return Server(name, (command, *texts(entry, "args", key)), environment, folder, fork)


def environment(name: str, value: Any, servers: Mapping[str, Server]) -> Environment:
    """One entry of `environments`."""
    key = f"environments.{name}"
    entry = table(value, key, ENVIRONMENT_KEYS)
    names = texts(entry, "servers", key)
    for used in names:
        if used not in servers:
            raise ConfigError(f"{key}.servers: no server {used!r}; there are {', '.join(sorted(servers)) or 'none'}")
    if not names or len(set(names)) < len(names):
        raise ConfigError(f"{key}.servers: name at least one server, each once")
    isolation = text(entry, "isolation", key, default="process")
    if isolation != "process":
        raise ConfigError(f"{key}.isolation: {isolation!r} is not taken in this release; give process")
    scorer = text(entry, "scorer", key, default="exact")
    if scorer not in SCORERS:
        raise ConfigError(f"{key}.scorer: {scorer!r} is unknown; give one of {', '.join(SCORERS)}")
    return Environment(
        name,
        tuple(servers[used] for used in names),
        description=text(entry, "description", key, default=""),
        isolation=isolation,
        tools=allowed(entry, key, names),
        limits=limits(entry.get("limits", {}), f"{key}.limits"),
        scorer=scorer,
    )


def allowed(entry: Json, key: str, servers: list[str]) -> frozenset[str] | None:
    """The tool allow-list."""
    if "tools" not in entry:
        return None
    names = texts(entry, "tools", key)
    for name in names:
        if not TOOL_NAME.fullmatch(name) or not any(name.startswith(f"{used}__") for used in servers):
            raise ConfigError(
                f"{key}.tools: {name!r} is not a tool's full name; write server__tool, matching {TOOL_NAME.pattern}"
            )
    return frozenset(names)


def limits(value: Any, key: str) -> Limits:
    """The limits, with defaults."""
    kinds = {known.name: int if known.name.endswith("_bytes") else float for known in fields(Limits)}
    entry = table(value, key, set(kinds))
    for name, given in entry.items():
        if isinstance(given, bool) or not isinstance(given, int | kinds[name]) or not 0 < given < 1e9:
            raise ConfigError(f"{key}.{name}: {given!r} is not a positive number")
    return replace(Limits(), **entry)
