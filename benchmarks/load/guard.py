"""Becomes another Python program that the kernel kills when its parent ends: `python guard.py PARENT_PID ARGUMENTS …`.

A program of its own, because a process that has gRPC's threads must not fork and then run code of its own before it
execs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # It outlives the exec.
    if os.getppid() != int(sys.argv[1]):
        raise SystemExit(1)  # The parent ended before the kernel was told.
    os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
