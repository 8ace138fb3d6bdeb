"""The agents that a node can run, by kind."""

from __future__ import annotations

import importlib
from collections.abc import Iterable

from practicum.common.errors import ConfigError
from practicum.node.agent import AgentFunction
from practicum.node.tool_agent import tool_agent

BUILT_IN: dict[str, AgentFunction] = {"tool_agent": tool_agent}


def load_agents(options: Iterable[str]) -> dict[str, AgentFunction]:
    """The built-in agents and those of options like `kind=module:function`."""
    return BUILT_IN | dict(load_agent(option) for option in options)


def load_agent(option: str) -> tuple[str, AgentFunction]:
    """One agent. ConfigError says what is wrong with the option."""
    kind, _, place = option.partition("=")
    module, _, name = place.partition(":")
    if not (kind and module and name):
        raise ConfigError(f"--agent {option}: give kind=module:function, such as solver=my_agents:solve")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"--agent {option}: {error}") from error
    if not callable(function):
        raise ConfigError(f"--agent {option}: {name} is not a function")
    return kind, function
