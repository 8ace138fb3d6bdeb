"""A run's events, read beside what else there is to do."""

from __future__ import annotations

import threading
import time

from practicum.cli.run_view import RunView
from practicum.client import CallFailed, TrainerClient

RETRY_SECONDS = 1.0


class Following(threading.Thread):
    """Reads a run's events into a view until the run ends; a trainer that was started again is asked again."""

    def __init__(self, trainer: TrainerClient, run_id: str, view: RunView) -> None:
        super().__init__(daemon=True)
        self._trainer, self._run_id, self._view = trainer, run_id, view
        self._sequence = 0
        self.error: Exception | None = None

    def run(self) -> None:
        """Ends with the run, or with an `error`, which who started this raises."""
        try:
            while not self._read():
                time.sleep(RETRY_SECONDS)
        except Exception as error:  # noqa: BLE001 - after Ctrl-C, which closes the connection, nobody wants to see it
            self.error = error

    def _read(self) -> bool:
        """Whether the run has ended."""
        try:
            for event in self._trainer.watch(self._run_id, from_sequence=self._sequence + 1):
                self._view.add(event)
                self._sequence = event.sequence
        except CallFailed as error:
            if not error.may_retry:
                raise
            return False
        return True
