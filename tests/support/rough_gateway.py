"""A gateway whose environments are the rough server, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.gateway_door import ROUGH, Door, descendants, door_to, write_catalogue
from support.services import Service, services_in

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
    """It has a secret."""
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
