"""Progress on a terminal as a picture that changes, elsewhere as lines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live

from practicum.cli import interrupts

LINE_SECONDS = 5.0

console = Console(highlight=False)


class Screen:
    """Shows how things stand. Without a terminal, a line every few seconds."""

    def __init__(self, live: Live | None) -> None:
        self._live = live
        self._line_at = 0.0

    def show(self, picture: RenderableType, line: str) -> None:
        """The picture where there is a terminal, else the line."""
        interrupts.check()
        if self._live is not None:
            self._live.update(picture, refresh=True)
        elif time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + LINE_SECONDS
            console.print(line, soft_wrap=True)

    def say(self, text: str) -> None:
        """A line that stays."""
        console.print(text, soft_wrap=True)


@contextmanager
def screen() -> Iterator[Screen]:
    """A screen that leaves the terminal as it was."""
    if not console.is_terminal:
        yield Screen(None)
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Screen(live)
