"""Counts the calls that a service answers, under the names that dashboards of gRPC services know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import grpc
from grpc import aio
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from practicum.common.errors import PracticumError
from practicum.common.histogram import Histogram
from practicum.common.interceptor import Handler

# A standby answers whatever method it is asked for: names are made up by callers then.
MAX_METHODS = 256
OTHER = "/practicum.other/other"
CODES = {code.value[0]: code.name for code in grpc.StatusCode}


@dataclass(slots=True)
class Calls:
    """The calls of one method."""

    kind: str
    codes: dict[str, int] = field(default_factory=dict)
    seconds: Histogram = field(default_factory=Histogram)

    def count(self, code: str, began: float) -> None:
        """A call ended."""
        self.codes[code] = self.codes.get(code, 0) + 1
        self.seconds.observe(perf_counter() - began)


class CallMeter(aio.ServerInterceptor):
    """Counts calls by method and code, and how long they took; streams at their end.

    It has to be the innermost interceptor: so it sees the errors themselves, and wraps each method only once.
    """

    def __init__(self) -> None:
        self._calls: dict[str, Calls] = {}
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the handler, whatever its kind."""
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if handler is None or not method.startswith("/practicum."):
            return handler
        if method not in self._wrapped and len(self._wrapped) >= MAX_METHODS:
            method = OTHER
        known = self._wrapped.get(method)
        if known is None or known[0] is not handler:
            known = self._wrapped[method] = handler, self._wrap(method, handler)
        return known[1]

    async def read(self) -> list[Metric]:
        """What was counted."""
        count = CounterMetricFamily(
            "grpc_server_handled",
            "Calls that were answered, streams at their end.",
            labels=("grpc_type", "grpc_service", "grpc_method", "grpc_code"),
        )
        seconds = HistogramMetricFamily(
            "grpc_server_handling_seconds",
            "How long calls took, streams from their beginning to their end.",
            labels=("grpc_type", "grpc_service", "grpc_method"),
        )
        for name, calls in self._calls.items():
            labels = (calls.kind, *name.removeprefix("/").split("/", 1))
            seconds.add_metric(labels, calls.seconds.buckets, calls.seconds.total)
            for code, number in calls.codes.items():
                count.add_metric((*labels, code), number)
        return [count, seconds]

    def _wrap(self, method: str, handler: Any) -> Handler:
        coders = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary:
            calls = self._of(method, "unary")
            return grpc.unary_unary_rpc_method_handler(metered(handler.unary_unary, calls), **coders)
        if handler.stream_unary:
            calls = self._of(method, "client_stream")
            return grpc.stream_unary_rpc_method_handler(metered(handler.stream_unary, calls), **coders)
        if handler.unary_stream:
            calls = self._of(method, "server_stream")
            return grpc.unary_stream_rpc_method_handler(metered_stream(handler.unary_stream, calls), **coders)
        calls = self._of(method, "bidi_stream")
        return grpc.stream_stream_rpc_method_handler(metered_stream(handler.stream_stream, calls), **coders)

    def _of(self, method: str, kind: str) -> Calls:
        return self._calls.setdefault(method, Calls(kind))


def metered(method: Callable[..., Awaitable[Any]], calls: Calls) -> Any:
    """Counts a method that answers once."""

    async def counted(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        began, code = perf_counter(), "OK"
        try:
            return await method(request, context)
        except BaseException as error:
            code = code_of(error, context)
            raise
        finally:
            calls.count(code, began)

    return counted


def metered_stream(method: Callable[..., AsyncIterator[Any]], calls: Calls) -> Any:
    """Counts a method that answers with a stream."""

    async def counted(request: Any, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        began, code = perf_counter(), "OK"
        try:
            async for response in method(request, context):
                yield response
        except BaseException as error:
            code = code_of(error, context)
            raise
        finally:
            calls.count(code, began)

    return counted


def code_of(error: BaseException, context: aio.ServicerContext[Any, Any]) -> str:
    """The status that a call ends with."""
    if isinstance(error, PracticumError):
        return error.code.name
    if isinstance(error, (asyncio.CancelledError, GeneratorExit)):
        return "CANCELLED"
    set_by_method: Any = context.code()  # As the generated bases do, for what is not filled in.
    name = set_by_method.name if isinstance(set_by_method, grpc.StatusCode) else CODES.get(set_by_method, "UNKNOWN")
    return "UNKNOWN" if name == "OK" else name
