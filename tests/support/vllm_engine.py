"""A real vLLM on this machine's CPUs, started as the `practicum` command starts it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import psutil

from practicum.cli.child import Child, wait_ready
from practicum.cli.engine import engine_child, vllm_python

# 20 s on a quiet machine; a busy one took 200.
START_SECONDS = 280.0
STOP_SECONDS = 60.0


@dataclass(slots=True)
class VllmEngine:
    """One vLLM, which may be killed and started again on the same port."""

    model: Path
    port: int
    log: Path
    child: Child = field(init=False)

    def __post_init__(self) -> None:
        self.child = engine_child(self.model, port=self.port, log=self.log)

    @property
    def address(self) -> str:
        """Its base URL."""
        return self.child.address

    def start(self) -> None:
        """Starts it, without waiting for it."""
        assert vllm_python().exists(), f"{vllm_python()} is not there: make it with `make setup`"
        self.child.start()

    def wait_until_up(self) -> None:
        """Returns when it answers."""
        wait_ready([self.child], seconds=START_SECONDS, tick=lambda waiting: None)

    def kill(self) -> None:
        """Ends it at once: its server, and its engine, which is a process of its own and would outlive it."""
        if self.child.process is not None:
            server = psutil.Process(self.child.process.pid)
            for process in [*server.children(recursive=True), server]:
                process.kill()
            self.child.wait(STOP_SECONDS)

    def stop(self) -> None:
        """Ends it in an orderly way."""
        self.child.terminate()
        self.child.wait(STOP_SECONDS)
