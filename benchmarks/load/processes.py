"""Processes of a benchmark: their CPU and memory as the kernel counts them, and an end for all of them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[1]
GUARD = Path(__file__).parent / "guard.py"
READY = "ready"
CPUCLOCK_SCHED = 2


def cpu_seconds(pid: int) -> float:
    """CPU that a process used so far, in user and system mode, all threads.

    The same as in /proc, which counts in ticks of 10 ms; this clock counts nanoseconds.
    """
    return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)


def rss_bytes(pid: int) -> int:
    """Memory that a process holds now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def children(commands: Sequence[Sequence[str]], **options: Any) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Python programs that have said `ready` on their standard output; killed with the context."""
    with programs(commands, stdout=subprocess.PIPE, **options) as started:
        for child, command in zip(started, commands, strict=True):
            wait_ready(child, " ".join(command))
        yield started


@contextmanager
def programs(
    commands: Sequence[Sequence[str]],
    *,
    python: Path | str = sys.executable,
    variables: Mapping[str, str] | None = None,
    **options: Any,
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Python programs; killed with the context, and by the kernel when this process ends."""
    path = os.pathsep.join(filter(None, (str(BENCHMARKS), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path} | dict(variables or {})
    guard = (str(GUARD), str(os.getpid()))
    with ExitStack() as stack:
        started = []
        for command in commands:
            child = subprocess.Popen([str(python), *guard, *command], env=environment, **options)
            stack.callback(end, child)
            started.append(child)
        yield started


def end(child: subprocess.Popen[bytes]) -> None:
    """kill -9."""
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()


def wait_ready(child: subprocess.Popen[bytes], name: str) -> None:
    """Until the program says that it is ready; what it prints before is skipped."""
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() == READY.encode():
            return
    raise RuntimeError(f"{name} ended with status {child.wait()} before it was ready")
