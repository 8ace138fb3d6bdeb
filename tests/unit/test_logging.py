"""What logs say of an error, and what they do not."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from contextlib import suppress

import pytest

from practicum.common.logging import brief

SCRIPT = """
import structlog
from practicum.common.logging import configure_logging

def fail(parts):
    prompt = "-".join(parts)
    raise ValueError("no such box")

configure_logging()
try:
    fail(["open", "box", "17"])
except ValueError:
    structlog.get_logger("test").exception("call_failed")
"""
SECRET = "open-box-17"


def on_a_terminal() -> str:
    """What the script writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stderr=theirs):
        os.close(theirs)
        written = b""
        with suppress(OSError):  # Linux says so when the other side is closed.
            while piece := os.read(ours, 4096):
                written += piece
        os.close(ours)
    return written.decode()


def into_a_pipe() -> str:
    """What it writes elsewhere."""
    return subprocess.run([sys.executable, "-c", SCRIPT], stderr=subprocess.PIPE, text=True, check=True).stderr


@pytest.mark.parametrize("run", [on_a_terminal, into_a_pipe])
def test_a_traceback_tells_no_values_of_variables(run: object) -> None:
    """They may be prompts, or the ground truth."""
    assert callable(run)
    text = run()
    assert "call_failed" in text and "ValueError" in text and "no such box" in text
    assert SECRET not in text and "'17'" not in text


def test_what_others_sent_is_cut() -> None:
    """An id of a megabyte, also in a list; not a traceback."""
    event = {"event": "tasks_accepted", "request_id": "x" * 10**6, "tasks": 3, "ids": ["y" * 2_000, "z"]}
    told = brief(None, "info", event)
    assert told["request_id"] == "x" * 1_000 + "… (1000000 characters)"
    assert [len(item) for item in told["ids"]] == [1_019, 1]
    assert (told["event"], told["tasks"]) == ("tasks_accepted", 3)
