"""Trace context that comes with a call, in W3C's form."""

from __future__ import annotations

from typing import Any

from grpc import aio

from practicum.common.tracing import valid


def traceparent_of(context: aio.ServicerContext[Any, Any]) -> str:
    """The caller's `traceparent`; empty when there is none, or it is not one."""
    for key, value in context.invocation_metadata() or ():
        if key == "traceparent" and isinstance(value, str):
            return valid(value)
    return ""
