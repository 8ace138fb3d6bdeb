"""Trains with AReaL, in this process. AReaL's import takes 11 to 38 seconds: it goes on while the first stage runs."""

from __future__ import annotations

import importlib
import os
import threading
from concurrent.futures import Future
from pathlib import Path

from practicum.trainer.context import RunContext
from practicum.trainer.outcome import RunFailed
from practicum.v1 import trainer_pb2

ENVIRONMENT = {
    # Engines live in this process, without AReaL's launchers and controllers.
    "AREAL_SPMD_MODE": "1",
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    # AReaL compiles the gathering of log-probabilities: 103 s on a CPU, where it saves nothing.
    "TORCH_COMPILE_DISABLE": "1",
    # More threads than cores that are free cost a factor of 100 (55 s instead of 0.5 s), and engines need theirs.
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "WANDB_MODE": "disabled",
}


class ArealBackend:
    """See `Backend`."""

    def __init__(self) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self._loaded: Future[None] = Future()

    def warm_up(self) -> None:
        """Begins to import AReaL."""
        threading.Thread(target=self._load, name="import", daemon=True).start()

    def _load(self) -> None:
        try:
            importlib.import_module("practicum.trainer.areal_trainer")
            importlib.import_module("practicum.trainer.areal_tuning")
            quieten()
        except BaseException as error:  # noqa: BLE001 - told to the thread that waits
            self._loaded.set_exception(error)
        else:
            self._loaded.set_result(None)

    def _wait(self, context: RunContext) -> None:
        try:
            while not self._loaded.done():
                context.loop.stopping.wait(0.05)
                context.loop.check()
            self._loaded.result()
        except ImportError as error:
            raise RunFailed(f"AReaL is not installed here: {error}") from error

    def sft(self, context: RunContext, stage: trainer_pb2.Stage) -> Path:
        """Supervised fine-tuning."""
        self._wait(context)
        from practicum.trainer.areal_tuning import fine_tune

        return fine_tune(context, stage)

    def grpo(self, context: RunContext, stage: trainer_pb2.Stage) -> Path:
        """Asynchronous GRPO."""
        self._wait(context)
        from practicum.trainer.areal_trainer import practise

        return practise(context, stage)


def quieten() -> None:
    """Leaves warnings of AReaL's reports. The rest would fill the log, and is in the metrics."""
    from areal.utils import logging

    for handler in logging.log_config["handlers"].values():
        handler["level"] = "WARNING"
    for logger in logging._created_loggers.values():
        logger.setLevel("WARNING")
