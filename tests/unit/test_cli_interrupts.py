"""Ctrl-C that comes at a bad moment."""

from __future__ import annotations

import subprocess
import sys

# Python drops what is raised inside __del__, as it does in callbacks of compiled code such as gRPC's.
SCRIPT = """
import os, signal
from practicum.cli import interrupts

class Callback:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)

interrupts.listen()
Callback()
print("went on", flush=True)
try:
    interrupts.check()
except KeyboardInterrupt:
    print("stopped")
"""


def test_a_ctrl_c_that_python_dropped_is_remembered() -> None:
    """The next look at it stops the command."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=30)
    assert "Exception ignored" in done.stderr, "it was not dropped, so this shows nothing"
    assert done.stdout.split("\n") == ["went on", "stopped", ""]
