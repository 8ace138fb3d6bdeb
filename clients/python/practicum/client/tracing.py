"""The caller's trace, which goes on in what it submits."""

from __future__ import annotations

import re

Metadata = tuple[tuple[str, str], ...]
TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def metadata_of(traceparent: str | None) -> Metadata:
    """What a call carries: this context, or the caller's present one if OpenTelemetry knows of any."""
    if traceparent is None:
        traceparent = present()
    elif traceparent and not TRACEPARENT.fullmatch(traceparent):
        raise ValueError(f"{traceparent!r} is no traceparent: give 00-<32 hex digits>-<16>-<2>, as W3C says")
    return (("traceparent", traceparent),) if traceparent else ()


def present() -> str:
    """The present span of OpenTelemetry; empty without one, or where it is not installed."""
    try:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return ""
    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent", "")
