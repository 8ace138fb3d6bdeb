"""Child processes that never outlive their parent, however it ends.

`python -m practicum.common.processes PID COMMAND …` runs a foreign program so: the setting survives exec.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def exit_with_parent(parent: int, number: signal.Signals = signal.SIGTERM) -> None:
    """Has the kernel send this process a signal when its parent ends, by kill -9 too.

    `parent`: the process id of who started this; it may have ended already, before the kernel was told.
    """
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


if __name__ == "__main__":
    exit_with_parent(int(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
