"""Reads JSON that people wrote. Each refusal names the key and what would be right."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from practicum.common.errors import ConfigError

VARIABLE = re.compile(r"\$\{([^}]*)\}")

Json = dict[str, Any]


def table(value: Any, key: str, known: set[str] | None = None) -> Json:
    """A JSON object with only these keys."""
    if not isinstance(value, dict):
        raise ConfigError(f"{key}: give a JSON object")
    unknown = sorted(set(value) - known) if known is not None else []
    if unknown:
        raise ConfigError(f"{key}: unknown key {unknown[0]!r}; known are {', '.join(sorted(known or ()))}")
    return value


def text(entry: Json, name: str, key: str, *, default: str | None = None) -> str:
    """A text, required unless it has a default."""
    value = entry.get(name, default)
    if not isinstance(value, str) or (not value and default is None):
        raise ConfigError(f"{key}.{name}: give a text" + ("" if name in entry else "; it is missing"))
    return value


def texts(entry: Json, name: str, key: str) -> list[str]:
    """A list of texts; absent means empty."""
    value = entry.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{key}.{name}: give a list of texts")
    return value


def expand(value: Any, key: str, variables: Mapping[str, str]) -> Any:
    """`${VAR}` in texts, at any depth."""
    if isinstance(value, dict):
        return {name: expand(item, f"{key}.{name}", variables) for name, item in value.items()}
    if isinstance(value, list):
        return [expand(item, key, variables) for item in value]
    return VARIABLE.sub(lambda match: variable(match[1], key, variables), value) if isinstance(value, str) else value


def variable(name: str, key: str, variables: Mapping[str, str]) -> str:
    """A variable's value."""
    if name not in variables:
        raise ConfigError(f"{key}: variable {name!r} is not set; set it where the gateway is started")
    return variables[name]
