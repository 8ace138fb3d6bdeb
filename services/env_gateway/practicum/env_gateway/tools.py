"""The tools that an agent may call, under names that are unique over an environment's servers."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import mcp_types as types

from practicum.common.errors import InvalidArgument, Unavailable
from practicum.env_gateway.catalogue import TOOL_NAME
from practicum.env_gateway.upstream import Upstream


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool and where it is. The full name, `server__tool`, is never taken apart again: servers may use `__` too."""

    name: str
    description: str
    input_schema_json: str
    upstream: Upstream
    upstream_name: str


def select_tools(
    upstreams: Sequence[Upstream], *, catalogued: Collection[str] | None, allowed: Collection[str]
) -> dict[str, Tool]:
    """The tools that the catalogue (None: all) and the task (empty: all) allow, by full name."""
    tools: dict[str, Tool] = {}
    for upstream in upstreams:
        for listed in upstream.tools:
            name = f"{upstream.name}__{listed.name}"
            if catalogued is None or name in catalogued:
                require_usable(name, upstream.name, tools)
                tools[name] = Tool(name, listed.description or "", schema_text(listed), upstream, listed.name)
    unknown = [name for name in allowed if name not in tools]
    if unknown:
        known = ", ".join(sorted(tools))
        raise InvalidArgument({"environment.allowed_tools": f"no tool {unknown[0]!r}; there are: {known}"})
    return {name: tool for name, tool in sorted(tools.items()) if not allowed or name in allowed}


def require_usable(name: str, server: str, taken: Collection[str]) -> None:
    """Refuses a name that models' tool-calling formats don't take, or that another tool has."""
    if not TOOL_NAME.fullmatch(name) or name in taken:
        raise Unavailable(
            f"tool {name!r} of server {server} collides or does not match {TOOL_NAME.pattern}: "
            "leave it out of the environment's `tools`",
            reason="ENVIRONMENT_OPEN_FAILED",
            metadata={"server": server, "dispatched": "false"},
        )


def schema_text(tool: types.Tool) -> str:
    """A tool's input schema as JSON text, keys in the server's order: a model is shown exactly this."""
    return json.dumps(tool.input_schema)


def parse_arguments(text: str) -> dict[str, object]:
    """A call's arguments. InvalidArgument unless they are the text of a JSON object; empty text means none."""
    try:
        arguments = ARGUMENTS.decode(text or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidArgument({"call.arguments_json": f"is not JSON: {error}"}) from error
    if not isinstance(arguments, dict):
        raise InvalidArgument({"call.arguments_json": "is not the text of a JSON object"})
    return arguments


def refuse_constant(name: str) -> None:
    """NaN and infinities are no JSON, though Python would take them."""
    raise ValueError(f"{name} is not JSON")


ARGUMENTS = json.JSONDecoder(parse_constant=refuse_constant)
