"""`practicum top`: queues and nodes as they change, until q or Ctrl-C."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from practicum.cli import interrupts
from practicum.cli.screen import console
from practicum.cli.top_view import Picture, duration, view
from practicum.client import CallFailed, ExecutorClient

REFRESH_SECONDS = 1.0
KEY_SECONDS = 0.1
# A call may take long at an executor that is stopped: the picture says how old it is.
OLD_SECONDS = 2.5


def top(address: str, *, once: bool) -> None:
    """Shows it live on a terminal, else once."""
    with ExecutorClient(address) as executor:
        if once or not console.is_terminal:
            before = picture_of(executor)
            time.sleep(REFRESH_SECONDS)  # Rates need two looks.
            console.print(view(picture_of(executor), before))
            return
        follow(Looker(executor, address))


def picture_of(executor: ExecutorClient) -> Picture:
    """One look. Raises CallFailed."""
    return Picture(executor.queues(), executor.nodes())


class Looker:
    """Looks once a second, from a thread of its own: a call that waits must not keep keys waiting."""

    def __init__(self, executor: ExecutorClient, address: str) -> None:
        self._executor = executor
        self._address = address
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stopped = threading.Event()
        self._shown: tuple[Picture, Picture] | None = None
        self._trouble = ""
        self.news = threading.Event()
        """Set when there is something new to see."""

    def __enter__(self) -> Looker:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()

    def render(self) -> RenderableType:
        """What is known, and what is wrong."""
        lines = [Text.assemble(("practicum top", "bold"), f"  {self._address}  q ends")]
        shown = self._shown
        age = 0.0 if shown is None else time.monotonic() - shown[0].at
        if self._trouble or age > OLD_SECONDS:
            since = f"; this is {duration(age)} old" if shown is not None else ""
            why = self._trouble or "the executor does not answer"
            lines.append(Text(f"trying again{since}: {why}", style="red", no_wrap=True, overflow="ellipsis"))
        if shown is None:
            return Group(*lines)
        return Group(*lines, Text(""), view(*shown, lines=console.height - len(lines)))

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                picture = picture_of(self._executor)
            except CallFailed as error:
                self._trouble = str(error).splitlines()[0]
            except ValueError:
                return  # The connection was closed: the end.
            else:
                before = self._shown[0] if self._shown is not None else picture
                self._shown, self._trouble = (picture, before), ""
            self.news.set()
            self._stopped.wait(REFRESH_SECONDS)


def follow(looker: Looker) -> None:
    """Until q or Ctrl-C."""
    with (
        suppress(KeyboardInterrupt),
        keys() as pressed,
        looker,
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        due = 0.0
        for text in pressed:
            interrupts.check()
            if "q" in text.lower():
                return
            if looker.news.is_set() or time.monotonic() >= due:
                looker.news.clear()
                live.update(looker.render(), refresh=True)
                due = time.monotonic() + REFRESH_SECONDS


@contextmanager
def keys() -> Iterator[Iterator[str]]:
    """What is typed, and nothing every so often; the terminal is left as it was."""
    if not sys.stdin.isatty():
        yield ticks()
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setcbreak(number)
    try:
        yield presses(number)
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def ticks() -> Iterator[str]:
    """Where nobody can press anything."""
    while True:
        yield ""
        time.sleep(KEY_SECONDS)


def presses(terminal: int) -> Iterator[str]:
    """What was typed, which is nothing most of the time; ends when the terminal does."""
    while True:
        ready, _, _ = select.select([terminal], [], [], KEY_SECONDS)
        typed = os.read(terminal, 64) if ready else b""
        if ready and not typed:
            return
        yield typed.decode(errors="replace")
