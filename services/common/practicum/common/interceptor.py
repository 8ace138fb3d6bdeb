"""The one place where domain errors become gRPC statuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from grpc import aio
from grpc_status import rpc_status

from practicum.common.errors import PracticumError, to_status

# Quoted: only the stubs' class takes parameters.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class ErrorInterceptor(aio.ServerInterceptor):
    """Ends a call that raised a PracticumError with its status and details."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Wraps the handler, whatever its kind."""
        handler = await continuation(handler_call_details)
        # Unknown methods have no handler; synchronous ones (reflection, channelz) raise nothing of ours.
        if handler is None or not handler_call_details.method.startswith("/practicum."):
            return handler
        return wrap(handler)


def wrap(handler: Any) -> Handler:
    """The same handler with its errors translated."""
    arguments = {
        "request_deserializer": handler.request_deserializer,
        "response_serializer": handler.response_serializer,
    }
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler(guard_unary(handler.unary_unary), **arguments)
    if handler.stream_unary:
        return grpc.stream_unary_rpc_method_handler(guard_unary(handler.stream_unary), **arguments)
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler(guard_stream(handler.unary_stream), **arguments)
    return grpc.stream_stream_rpc_method_handler(guard_stream(handler.stream_stream), **arguments)


def guard_unary(method: Callable[..., Awaitable[Any]]) -> Any:
    """Guards a method that answers once."""

    async def guarded(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await method(request, context)
        except PracticumError as error:
            await context.abort_with_status(rpc_status.to_status(to_status(error)))

    return guarded


def guard_stream(method: Callable[..., AsyncIterator[Any]]) -> Any:
    """Guards a method that answers with a stream."""

    async def guarded(request: Any, context: aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        try:
            async for response in method(request, context):
                yield response
        except PracticumError as error:
            await context.abort_with_status(rpc_status.to_status(to_status(error)))

    return guarded
