"""Child processes that never outlive their parent, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1


def exit_with_parent(number: signal.Signals = signal.SIGTERM) -> None:
    """Has the kernel send this process a signal when the thread that started it ends, by kill -9 too."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:  # It ended before the kernel was told.
        os.kill(os.getpid(), number)


def bound(command: Sequence[str]) -> list[str]:
    """The command line that runs a foreign program under `exit_with_parent`: the setting survives exec."""
    return [sys.executable, "-m", "practicum.common.processes", *command]


if __name__ == "__main__":
    exit_with_parent()
    os.execvp(sys.argv[1], sys.argv[1:])
