"""One service as a child process: its log, its readiness, its end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from practicum.cli.restarts import Restarts

LOG_LINES = 12


@dataclass
class Child:
    """`ready` tells whether it serves. `stop_rank`: lower stops earlier."""

    name: str
    command: Sequence[str]
    log: Path
    ready: Callable[[], bool]
    address: str = ""
    stop_rank: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    restarts: Restarts = field(default_factory=Restarts)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it in a session of its own: Ctrl-C reaches the command alone, which stops its children in order."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
                start_new_session=True,
            )
        self.restarts.started(time.monotonic())

    @property
    def exit_status(self) -> int | None:
        """None while it runs, or before it was started."""
        return self.process.poll() if self.process is not None else None

    def terminate(self) -> None:
        """Asks it to stop."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def wait(self, seconds: float) -> None:
        """Waits for its end; then nothing that it started is left either."""
        if self.process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def last_words(self) -> str:
        """The end of its log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-LOG_LINES:])


class StartFailed(Exception):
    """A service ended instead of serving, or serves too late."""

    def __init__(self, child: Child, what: str) -> None:
        super().__init__(f"{child.name} {what}. The end of {child.log}:\n{child.last_words()}")


def wait_ready(children: Sequence[Child], *, seconds: float, tick: Callable[[Sequence[Child]], None]) -> None:
    """Waits until all serve; `tick` is told what is still awaited."""
    deadline = time.monotonic() + seconds
    waiting = list(children)
    while waiting:
        for child in waiting:
            if child.exit_status is not None:
                raise StartFailed(child, f"ended with status {child.exit_status}")
        waiting = [child for child in waiting if not child.ready()]
        tick(waiting)
        if waiting and time.monotonic() > deadline:
            raise StartFailed(waiting[0], f"does not serve after {seconds:.0f} s")
        if waiting:
            time.sleep(0.2)
