"""Foreign programs under guard, which never outlive who started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.commands import wait_for

GUARD = [sys.executable, "-m", "practicum.common.processes"]
# As vLLM while it loads: SIGTERM gets lost, and there is a second process.
STUBBORN = """
import pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "1000"])
pathlib.Path(sys.argv[1]).write_text(str(child.pid))
time.sleep(1000)
"""
# Starts its arguments as a child, and waits.
PARENT = """
import os, subprocess, sys
guard = sys.argv[1:4]
subprocess.Popen([*guard, str(os.getpid()), *sys.argv[4:]], start_new_session=True).wait()
"""


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Path]:
    """A file that the programs have in their command line; none is left."""
    yield tmp_path / "pid"
    for process in alive(tmp_path / "pid"):
        process.kill()


def alive(mark: Path) -> list[psutil.Process]:
    """The programs with this mark, and what they started."""
    found = [p for p in psutil.process_iter(["cmdline", "status"]) if str(mark) in (p.info["cmdline"] or ())]
    if mark.exists() and mark.read_text() and psutil.pid_exists(int(mark.read_text())):
        found.append(psutil.Process(int(mark.read_text())))
    return [p for p in found if p.status() != psutil.STATUS_ZOMBIE]


def test_nothing_outlives_a_killed_parent_even_when_it_hears_no_signal(marked: Path) -> None:
    """Neither the program, nor what it started, nor the guard."""
    command = [sys.executable, "-c", PARENT, *GUARD, sys.executable, "-c", STUBBORN, str(marked)]
    with subprocess.Popen(command) as parent:
        try:
            wait_for(lambda: marked.exists() and bool(marked.read_text()))
        finally:
            parent.kill()
    wait_for(lambda: alive(marked) == [], 10)


def test_the_guard_passes_sigterm_on_and_tells_the_exit_status() -> None:
    """The program ends in its own way."""
    script = "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print('up', flush=True); signal.pause()"
    command = [*GUARD, str(os.getpid()), sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as guard:
        assert guard.stdout is not None and guard.stdout.readline() == b"up\n"
        guard.send_signal(signal.SIGTERM)
        assert guard.wait(10) == 7


def test_a_program_ends_with_its_guard() -> None:
    """kill -9 of the guard alone."""
    command = [
        *GUARD,
        str(os.getpid()),
        sys.executable,
        "-c",
        "import os, time; print(os.getpid(), flush=True); time.sleep(1000)",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as guard:
        assert guard.stdout is not None
        program = psutil.Process(int(guard.stdout.readline()))
        guard.kill()
    wait_for(lambda: not program.is_running() or program.status() == psutil.STATUS_ZOMBIE, 10)
