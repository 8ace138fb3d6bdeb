"""Ctrl-C and SIGTERM, which must not get lost: Python drops an exception that a signal raises inside a callback."""

from __future__ import annotations

import signal
import threading
from types import FrameType

_told = threading.Event()


def listen() -> None:
    """From now on both signals raise KeyboardInterrupt, and are remembered."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Everything is stopped in order."""
    _told.set()
    raise KeyboardInterrupt


def check() -> None:
    """Raises KeyboardInterrupt if a signal came, also when the first one was dropped. Loops call it."""
    if _told.is_set():
        raise KeyboardInterrupt
