"""What `practicum doctor` asks of a machine."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from practicum.cli.doctor import GIB, machine


class Disk(NamedTuple):
    """As shutil tells it."""

    free: int


class Memory(NamedTuple):
    """As psutil tells it."""

    available: int


def wrong(monkeypatch: pytest.MonkeyPatch, *, memory: float, disk: float) -> set[str]:
    """What has to be mended on a machine of this size."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(int(memory * GIB)))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Disk(int(disk * GIB)))
    return {finding.what for finding in machine() if finding.remedy} - {"cores"}


def test_a_run_needs_little_disk_once_vllm_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One GiB, and 4 GiB of memory, as the README says."""
    (tmp_path / "python").touch()
    monkeypatch.setenv("PRACTICUM_VLLM_PYTHON", str(tmp_path / "python"))
    assert wrong(monkeypatch, memory=4, disk=1) == set()
    assert wrong(monkeypatch, memory=3.9, disk=0.9) == {"free memory", "free disk"}


def test_set_up_needs_five_more(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As long as vLLM is missing."""
    monkeypatch.setenv("PRACTICUM_VLLM_PYTHON", str(tmp_path / "missing"))
    assert wrong(monkeypatch, memory=4, disk=6) == set()
    assert wrong(monkeypatch, memory=4, disk=5.9) == {"free disk"}
