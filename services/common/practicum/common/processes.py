"""Child processes that never outlive their parent, however it ends.

`python -m practicum.common.processes PID COMMAND …` runs a foreign program so, under guard.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from types import FrameType

PR_SET_PDEATHSIG = 1


def exit_with_parent(parent: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Has the kernel send this process a signal when its parent ends, by kill -9 too.

    `parent`: the process id of who started this; it may have ended already, before the kernel was told.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def guard(parent: int, command: Sequence[str]) -> int:
    """Runs a foreign program; returns its exit status. SIGTERM is passed on to it.

    When the parent has ended, the program and all that it started are killed: one that starts may lose a signal,
    and nobody would be left to send another.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    program = subprocess.Popen(command, preexec_fn=partial(exit_with_parent, os.getpid()))

    def terminate(number: int, frame: FrameType | None) -> None:
        if os.getppid() != parent:
            os.killpg(0, signal.SIGKILL)
        program.terminate()

    signal.signal(signal.SIGTERM, terminate)
    exit_with_parent(parent)
    status = program.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(guard(int(sys.argv[1]), sys.argv[2:]))
