"""Logging to stderr: readable on a terminal, one JSON object a line elsewhere."""

from __future__ import annotations

import sys

import structlog


def configure_logging() -> None:
    """Configures structlog for this process. Call once, at start."""
    terminal = sys.stderr.isatty()
    last = structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *(() if terminal else (structlog.processors.format_exc_info,)),
            last,
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
