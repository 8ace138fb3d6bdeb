"""What ends a rollout early, and whose fault it was."""

from __future__ import annotations

import traceback

import grpc
from google.protobuf.message import Message
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status

from practicum.node.deadline import seconds_of
from practicum.v1 import message_pb2

# The request itself was wrong: another attempt would meet the same answer.
OF_THE_TASK = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
# A gateway or a proxy that was restarted knows no session of before: another attempt opens a new one.
LOST_WITH_A_SERVICE = {"SESSION_UNKNOWN"}


class InfrastructureError(Exception):
    """A tool, a model or this node failed. Another attempt may succeed, unless `final`."""

    def __init__(self, error: message_pb2.ErrorPayload, *, final: bool = False) -> None:
        super().__init__(f"{error.reason}: {error.detail}")
        self.error = error
        self.final = final


class LimitReached(Exception):
    """The agent used up its steps or tokens."""


def failure(error: aio.AioRpcError, source: message_pb2.ErrorSource.ValueType) -> InfrastructureError:
    """A failed call to another service as the end of the rollout."""
    reason = reason_of(error) or error.code().name
    final = error.code() in OF_THE_TASK and reason not in LOST_WITH_A_SERVICE
    return InfrastructureError(
        message_pb2.ErrorPayload(
            source=message_pb2.ERROR_SOURCE_TASK if final else source,
            reason=reason,
            detail=error.details() or "",
        ),
        final=final,
    )


def place_of(error: BaseException) -> str:
    """Where an error was raised, for logs: they tell neither its text nor any value, which may be a prompt."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def reason_of(error: aio.AioRpcError) -> str:
    """The reason in a call's status details; empty when there is none."""
    info = error_details_pb2.ErrorInfo()
    unpack(error, info)
    return str(info.reason)


def retry_delay(error: aio.AioRpcError) -> float | None:
    """After how many seconds the service wants the call repeated; None when it does not."""
    info = error_details_pb2.RetryInfo()
    return seconds_of(info.retry_delay) if unpack(error, info) else None


def unpack(error: aio.AioRpcError, into: Message) -> bool:
    """Reads the detail of one type out of a call's status. Returns whether there is one."""
    status = rpc_status.from_call(error)
    return any(detail.Unpack(into) for detail in (status.details if status is not None else ()))
