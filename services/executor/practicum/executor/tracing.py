"""Trace context that comes with a call, in W3C's form."""

from __future__ import annotations

import re
from typing import Any

from grpc import aio

TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def traceparent_of(context: aio.ServicerContext[Any, Any]) -> str:
    """The caller's `traceparent`; empty when there is none, or it is not one."""
    for key, value in context.invocation_metadata() or ():
        if key == "traceparent" and isinstance(value, str) and TRACEPARENT.fullmatch(value):
            return value
    return ""
