"""Spans through OpenTelemetry's SDK, sent to where its usual variables say. Import it only where they are wanted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from practicum.common.tracing import Facts, Span, within

log = structlog.get_logger(__name__)

FLUSH_SECONDS = 2.0
W3C = TraceContextTextMapPropagator()


class Exporter:
    """Makes spans, and sends them in batches from a thread of its own; what can't be sent is dropped."""

    def __init__(self, service: str) -> None:
        """`service` is its name unless `OTEL_SERVICE_NAME` gives another."""
        resource = Resource.create()
        if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: f"practicum-{service}"}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("practicum")
        sdk = logging.getLogger("opentelemetry")
        sdk.addHandler(Unsent())
        sdk.propagate = False

    @contextmanager
    def span(self, name: str, facts: Facts, *, parent: str | None, begins: bool) -> Iterator[Span]:
        """A span. An error's text stays out of it: it may quote a prompt."""
        context = None if parent is None else W3C.extract({"traceparent": parent}, Context())
        with self._tracer.start_as_current_span(
            name, context, attributes=facts, record_exception=False, set_status_on_exception=False
        ) as made:
            carried: dict[str, str] = {}
            W3C.inject(carried)
            with within(carried.get("traceparent", "")):
                try:
                    yield Told(made)
                except BaseException as error:
                    made.set_status(trace.StatusCode.ERROR, type(error).__name__)
                    raise

    def close(self) -> None:
        """Sends what waits, as far as that takes no longer than a moment."""
        flush = Thread(target=self._provider.shutdown, daemon=True)
        flush.start()
        flush.join(FLUSH_SECONDS)


class Told:
    """A span of the SDK's."""

    def __init__(self, made: trace.Span) -> None:
        self._made = made

    def tell(self, facts: Facts) -> None:
        """Sets attributes."""
        self._made.set_attributes(facts)


class Unsent(logging.Handler):
    """What the SDK complains of, in our log."""

    def emit(self, record: logging.LogRecord) -> None:
        """One event."""
        log.warning("spans_not_sent", detail=record.getMessage())
