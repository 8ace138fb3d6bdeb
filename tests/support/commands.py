"""Commands as a person runs them: reading along, and looking at what they leave."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

PRACTICUM = str(Path(sys.executable).with_name("practicum"))


def practicum(*arguments: str, status: int = 0) -> str:
    """Runs the command to its end; returns what it printed."""
    done = subprocess.run([PRACTICUM, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def processes_of(folder: Path) -> list[psutil.Process]:
    """The processes that work in a folder, the command itself left out."""
    return [p for p in psutil.process_iter() if str(folder) in told(p) and f"{PRACTICUM} " not in told(p)]


def told(process: psutil.Process) -> str:
    """A process's command line and where it logs."""
    try:
        return " ".join([*process.cmdline(), *(file.path for file in process.open_files())])
    except psutil.Error:
        return ""


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Reads output up to a line with this text."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return
    raise AssertionError("".join(seen))


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Looks again and again."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
