"""Logging to stderr: readable on a terminal, one JSON object a line elsewhere."""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO

import structlog

# Ids and reasons come from others, of any length.
MAX_CHARACTERS = 1_000
LEVELS = ("debug", "info", "warning", "error")


class Forgiving:
    """A stream that drops what can't be written: a full disk under the log must not stop the service."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes, if it can."""
        with suppress(OSError):
            return self._stream.write(text)
        return 0

    def flush(self) -> None:
        """Flushes, if it can."""
        with suppress(OSError):
            self._stream.flush()


def configure_logging(level: str = "info") -> None:
    """Configures structlog for this process. Call once, at start. `level`: one of LEVELS; less is not logged."""
    terminal = sys.stderr.isatty()
    # Plain tracebacks: prettier ones print the values of variables, and those may be prompts or secrets.
    console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    last = console if terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            brief,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *(() if terminal else (structlog.processors.format_exc_info,)),
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(Forgiving(sys.stderr)),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )


def brief(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Cuts texts that are too long for a log."""
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = shortened(value)
        elif isinstance(value, list):
            event[key] = [shortened(item) if isinstance(item, str) else item for item in value]
    return event


def shortened(text: str) -> str:
    """A text, or its beginning and how long it is."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}… ({len(text)} characters)"
