"""What the meter of calls counts, whatever ends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from practicum.common.call_meter import MAX_METHODS, CallMeter
from practicum.common.errors import PracticumError, ResourceExhausted
from practicum.common.histogram import Histogram

NOTHING = SimpleNamespace(code=lambda: 0)
UNIMPLEMENTED = SimpleNamespace(code=lambda: grpc.StatusCode.UNIMPLEMENTED.value[0])


async def handler_of(meter: CallMeter, handler: Any, method: str = "/practicum.v1.X/Call") -> Any:
    """The handler as the meter wraps it."""

    async def continuation(details: object) -> Any:
        return handler

    return await meter.intercept_service(continuation, SimpleNamespace(method=method))


async def counted(meter: CallMeter) -> dict[tuple[str, str], float]:
    """How often each method ended with each code."""
    handled, _ = await meter.read()
    return {(s.labels["grpc_method"], s.labels["grpc_code"]): s.value for s in handled.samples}


@pytest.mark.parametrize(
    ("error", "context", "code"),
    [
        (ResourceExhausted("full", reason="BACKLOG_FULL"), NOTHING, "RESOURCE_EXHAUSTED"),
        (PracticumError("broken", reason="INTERNAL"), NOTHING, "INTERNAL"),
        (asyncio.CancelledError(), NOTHING, "CANCELLED"),
        (NotImplementedError(), UNIMPLEMENTED, "UNIMPLEMENTED"),
        (KeyError("a bug"), NOTHING, "UNKNOWN"),
    ],
)
async def test_an_error_is_counted_by_its_status(error: BaseException, context: Any, code: str) -> None:
    """And goes on its way."""

    async def fail(request: object, context: object) -> None:
        raise error

    meter = CallMeter()
    handler = await handler_of(meter, grpc.unary_unary_rpc_method_handler(fail))
    with pytest.raises(type(error)):
        await handler.unary_unary(None, context)
    assert await counted(meter) == {("Call", code): 1}


async def test_a_stream_is_counted_at_its_end() -> None:
    """Also when its reader leaves early."""

    async def two(request: object, context: object) -> AsyncIterator[int]:
        yield 1
        yield 2

    meter = CallMeter()
    handler = await handler_of(meter, grpc.unary_stream_rpc_method_handler(two))
    stream = handler.unary_stream(None, NOTHING)
    assert await anext(stream) == 1 and await counted(meter) == {}
    assert [number async for number in stream] == [2]
    left = handler.unary_stream(None, NOTHING)
    await anext(left)
    await left.aclose()
    assert await counted(meter) == {("Call", "OK"): 1, ("Call", "CANCELLED"): 1}


async def test_a_method_is_wrapped_once_and_made_up_ones_share_a_name() -> None:
    """A standby answers any name, and a scrape has to stay small."""

    async def answer(request: object, context: object) -> int:
        return 1

    meter, handler = CallMeter(), grpc.unary_unary_rpc_method_handler(answer)
    assert await handler_of(meter, handler) is await handler_of(meter, handler)
    for number in range(2 * MAX_METHODS):
        wrapped = await handler_of(meter, handler, f"/practicum.v1.X/Call{number}")
        assert await wrapped.unary_unary(None, NOTHING) == 1
    found = await counted(meter)
    assert len(found) == MAX_METHODS and found["other", "OK"] == MAX_METHODS + 1
    assert await handler_of(meter, handler, "/grpc.health.v1.Health/Check") is handler


def test_a_histogram_counts_what_does_not_exceed_its_bounds() -> None:
    """A value that equals a bound is within it."""
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    assert histogram.buckets == [("0.1", 2), ("1.0", 3), ("+Inf", 4)]
    assert histogram.total == pytest.approx(7.65)
