"""The command line of a service. Each flag may also be set by a variable: `--database` of the executor by
`PRACTICUM_EXECUTOR_DATABASE`; the flag wins."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from practicum.common import tracing
from practicum.common.errors import ConfigError
from practicum.common.logging import LEVELS, configure_logging
from practicum.common.processes import exit_with_parent
from practicum.common.server import ServerConfig

log = structlog.get_logger(__name__)

# OpenTelemetry's own: what they mean is documented there.
OTLP_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
OTEL_DISABLED = "OTEL_SDK_DISABLED"
TRUE, FALSE = {"1", "true", "yes"}, {"", "0", "false", "no"}


class ServiceParser(argparse.ArgumentParser):
    """Parses flags, with variables as their defaults. A wrong value names the flag or variable and what is right."""

    def __init__(self, service: str, *, description: str, port: int) -> None:
        """`service`: as in its package's name. Adds what every service has."""
        super().__init__(prog=f"python -m practicum.{service}", description=description)
        self.service = service
        self.add_argument("--address", default=f"127.0.0.1:{port}", help="where to serve (default: %(default)s)")
        self.add_argument("--insecure", action="store_true", help="serve on an address that others can reach")
        self.add_argument(
            "--metrics-address", metavar="HOST:PORT", help="where to serve /metrics for Prometheus (default: nowhere)"
        )
        self.add_argument("--log-level", choices=LEVELS, default="info", help="from where on (default: %(default)s)")
        self.add_argument(
            "--exit-with-parent", type=int, metavar="PID", help="stop when this process, which starts the service, ends"
        )

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """As argparse's, with the variable's value as the default."""
        action = super().add_argument(*names, **options)
        service = getattr(self, "service", None)
        variable = f"PRACTICUM_{service}_{action.dest}".upper()
        if service is not None and variable in os.environ:
            action.default = self._from_variable(action, variable, os.environ[variable])
            action.required = False
        return action

    def _from_variable(self, action: argparse.Action, variable: str, text: str) -> Any:
        if action.nargs == 0:
            if text.lower() not in TRUE | FALSE:
                self.error(f"{variable}={text!r}: give 1 or 0")
            return text.lower() in TRUE
        if action.choices is not None and text not in action.choices:
            self.error(f"{variable}={text!r}: give one of {', '.join(map(str, action.choices))}")
        return [text] if isinstance(action.default, list) else text


def server_config(arguments: argparse.Namespace) -> ServerConfig:
    """Where to serve, from a ServiceParser's arguments."""
    return ServerConfig(arguments.address, insecure=arguments.insecure, metrics_address=arguments.metrics_address)


def run_service(arguments: argparse.Namespace, main: Coroutine[Any, Any, None], *, spans_of: str = "") -> None:
    """Runs a service's main coroutine; a ConfigError ends the process with its sentence and exit code 2.

    `spans_of`: the name of a service that makes spans.
    """
    configure_logging(arguments.log_level)
    if arguments.exit_with_parent is not None:
        exit_with_parent(arguments.exit_with_parent)
    try:
        with sending_spans(spans_of):
            asyncio.run(main)
    except ConfigError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2) from error


@contextmanager
def sending_spans(service: str) -> Iterator[None]:
    """Sends a service's spans for as long as the context lasts, if that is wanted and can be done."""
    wanted = any(os.environ.get(name) for name in OTLP_ENDPOINTS)
    if not service or not wanted or os.environ.get(OTEL_DISABLED, "").lower() in TRUE:
        yield
        return
    try:
        from practicum.common.spans import Exporter
    except ImportError as error:
        log.warning("spans_not_made", reason=f"{error.name} is not installed: it comes with the extra practicum[otel]")
        yield
        return
    exporter = Exporter(service)
    tracing.use(exporter)
    try:
        yield
    finally:
        exporter.close()
