"""What tests of every kind share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.services import Services, services_in, unused_address


@pytest.fixture
def address() -> str:
    return unused_address()


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    """Starts real services; none outlives the test."""
    with services_in(tmp_path) as services:
        yield services
