"""Tells what happens in a run: to the service through a pipe, and to a file that stays with the run's results."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import structlog
from google.protobuf import json_format

from practicum.trainer.journal import frame
from practicum.v1 import trainer_pb2

log = structlog.get_logger(__name__)


class Reporter:
    """Sends events. Thread-safe. `descriptor`: the writing end of the service's pipe."""

    def __init__(self, descriptor: int, metrics: Path) -> None:
        self._descriptor = descriptor
        self._metrics = metrics.open("a")
        self._lock = threading.Lock()
        self.stage = ""

    def begin(self, stage: str, steps: int) -> None:
        """A stage begins; what follows belongs to it."""
        self.stage = stage
        self._send(trainer_pb2.RunEvent(stage_started=trainer_pb2.StageStarted(steps=steps)))

    def step(self, metrics: trainer_pb2.StepMetrics) -> None:
        """A step was made."""
        self._send(trainer_pb2.RunEvent(step=metrics))

    def evaluation(self, result: trainer_pb2.EvaluationResult) -> None:
        """A measurement was made."""
        self._send(trainer_pb2.RunEvent(evaluation=result))

    def note(self, text: str) -> None:
        """Something worth telling a person."""
        self._send(trainer_pb2.RunEvent(note=text))

    def _send(self, event: trainer_pb2.RunEvent) -> None:
        event.stage = self.stage
        event.time.GetCurrentTime()
        data = memoryview(frame(event.SerializeToString()))
        line = json.dumps(json_format.MessageToDict(event, preserving_proto_field_name=True))
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._descriptor, data) :]
            except BrokenPipeError:
                log.warning("event_not_heard")  # The service ended before this process, which is told to stop.
            self._metrics.write(f"{line}\n")
            self._metrics.flush()

    def close(self) -> None:
        """Closes the file; the pipe ends with the process."""
        self._metrics.close()
