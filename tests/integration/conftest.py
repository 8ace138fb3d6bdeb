"""Engines and models that integration tests share: starting vLLM takes 20 s and more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.postgres import postgres as postgres
from support.postgres import postgres_url as postgres_url
from support.services import unused_address
from support.vllm_engine import VllmEngine


@pytest.fixture(scope="session")
def weights_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where checkpoints are published; one for all, since the engine remembers what it serves."""
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model with random weights."""
    folder = tmp_path_factory.mktemp("model")
    command = [sys.executable, "-m", "practicum.environments.boxes.model", "--output", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def player(weights_root: Path) -> Path:
    """The folder of a small model that knows one game of boxes by heart."""
    from support.tiny_checkpoints import make_player

    make_player(weights_root / "player")
    return weights_root / "player"


@pytest.fixture(scope="session")
def engine(player: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmEngine]:
    """A real vLLM that serves the player."""
    port = int(unused_address().rpartition(":")[2])
    engine = VllmEngine(player, port, tmp_path_factory.mktemp("vllm") / "log")
    engine.start()
    try:
        engine.wait_until_up()
        yield engine
    finally:
        engine.stop()
