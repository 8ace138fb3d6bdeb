"""Where a call came from, in W3C's form, carried on to all that it leads to; and spans of it, where they are wanted.

The context is carried always. Spans are made and sent (OTLP over HTTP) when an endpoint is configured and
OpenTelemetry's SDK is installed, which is the extra `otel`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeAlias

TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
TRACE_ID = slice(3, 35)
FLAGS = slice(53, 55)

Facts: TypeAlias = Mapping[str, str | int | float | bool]
NONE: Facts = {}
_current: ContextVar[str] = ContextVar("traceparent", default="")


class Span(Protocol):
    """Something that takes a while. What is said of it holds ids and figures, never prompts or answers."""

    def tell(self, facts: Facts) -> None:
        """Facts that are known by now, by attribute."""


class Tracer(Protocol):
    """Makes spans."""

    def span(self, name: str, facts: Facts, *, parent: str | None, begins: bool) -> AbstractContextManager[Span]:
        """See `span` below."""


class Silent:
    """A span that nobody sees."""

    def tell(self, facts: Facts) -> None:
        """Does nothing."""


class Carrier:
    """Makes no spans: the context goes on as it is, or with an id of its own where something `begins`."""

    @contextmanager
    def span(self, name: str, facts: Facts, *, parent: str | None, begins: bool) -> Iterator[Span]:
        """Nobody sees it."""
        above = current() if parent is None else parent
        with within(child_of(above) if begins else above):
            yield Silent()


_tracer: Tracer = Carrier()


def use(tracer: Tracer) -> None:
    """Has another make the spans of this process."""
    global _tracer
    _tracer = tracer


def span(
    name: str, facts: Facts = NONE, *, parent: str | None = None, begins: bool = False
) -> AbstractContextManager[Span]:
    """A context manager: within it the context is that of a span of this name. It fails with what is raised.

    `parent`: a traceparent, empty when nothing led to it; None: the present one. `begins`: whoever is called is to see
    an id of this span's own, though it may not be exported.
    """
    return _tracer.span(name, facts, parent=parent, begins=begins)


def current() -> str:
    """The traceparent of what is done now; empty when there is none."""
    return _current.get()


def metadata() -> tuple[tuple[str, str], ...]:
    """What calls to other services carry."""
    traceparent = _current.get()
    return (("traceparent", traceparent),) if traceparent else ()


def valid(traceparent: str) -> str:
    """The traceparent, or nothing where it is not one."""
    return traceparent if TRACEPARENT.fullmatch(traceparent) else ""


def trace_id_of(traceparent: str) -> str:
    """What all that one request led to has in common."""
    return traceparent[TRACE_ID]


def child_of(traceparent: str) -> str:
    """The same trace, with a new id of who calls."""
    if not traceparent:
        return ""
    return f"00-{traceparent[TRACE_ID]}-{secrets.token_hex(8)}-{traceparent[FLAGS]}"


@contextmanager
def within(traceparent: str) -> Iterator[None]:
    """What is done now belongs to it."""
    token = _current.set(traceparent)
    try:
        yield
    finally:
        _current.reset(token)
