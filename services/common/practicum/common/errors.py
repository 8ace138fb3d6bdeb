"""The errors that services raise, and their translation into `google.rpc.Status` with details."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2

DOMAIN = "practicum"
# Clients refuse trailers above 8 kB. The detail is in it twice, once with three bytes for each that is not ASCII.
MAX_DETAIL_BYTES = 768
MAX_VIOLATIONS_BYTES = 2_048
MAX_NAME_BYTES = 256


class ConfigError(Exception):
    """The service can't start as it was configured; the text says what is wrong and what would be right."""


class PracticumError(Exception):
    """An error that a caller may see: a status code, a stable reason, a sentence, and facts by name."""

    code = grpc.StatusCode.INTERNAL

    def __init__(
        self,
        detail: str,
        *,
        reason: str,
        metadata: Mapping[str, str] | None = None,
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.reason = reason
        self.metadata = dict(metadata or {})
        self.retry_after_seconds = retry_after_seconds


class InvalidArgument(PracticumError):
    """The request is wrong, and repeating it will not help. `fields` maps a field's path to what is wrong with it."""

    code = grpc.StatusCode.INVALID_ARGUMENT

    def __init__(self, fields: Mapping[str, str], *, reason: str = "INVALID_FIELD") -> None:
        super().__init__("; ".join(f"{field}: {wrong}" for field, wrong in fields.items()), reason=reason)
        self.fields = dict(fields)


class NotFound(PracticumError):
    """The thing that the request names does not exist."""

    code = grpc.StatusCode.NOT_FOUND


class AlreadyExists(PracticumError):
    """The id is taken by something else."""

    code = grpc.StatusCode.ALREADY_EXISTS


class FailedPrecondition(PracticumError):
    """The thing is not in a state that allows this."""

    code = grpc.StatusCode.FAILED_PRECONDITION


class Aborted(PracticumError):
    """Somebody else took over; repeating the call would take it back."""

    code = grpc.StatusCode.ABORTED


class DeadlineExceeded(PracticumError):
    """It took longer than it may."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED


class ResourceExhausted(PracticumError):
    """There is no room now."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED


class Unavailable(PracticumError):
    """A part that is needed can't be reached now."""

    code = grpc.StatusCode.UNAVAILABLE


def to_status(error: PracticumError) -> status_pb2.Status:
    """The error as a Status with ErrorInfo, and BadRequest or RetryInfo where they apply.

    What callers sent may be in it, of any length: it is cut, so that the trailer is one that gRPC takes.
    """
    metadata = {cut(name, MAX_NAME_BYTES): cut(value, MAX_NAME_BYTES) for name, value in error.metadata.items()}
    details: list[Message] = [error_details_pb2.ErrorInfo(reason=error.reason, domain=DOMAIN, metadata=metadata)]
    if isinstance(error, InvalidArgument):
        details.append(error_details_pb2.BadRequest(field_violations=violations(error.fields)))
    if error.retry_after_seconds is not None:
        delay = Duration()
        delay.FromNanoseconds(int(error.retry_after_seconds * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    message = cut(error.detail, MAX_DETAIL_BYTES)
    return status_pb2.Status(code=error.code.value[0], message=message, details=[pack(d) for d in details])


def violations(fields: Mapping[str, str]) -> Iterator[error_details_pb2.BadRequest.FieldViolation]:
    """What is wrong with the first fields, as many as there is room for."""
    left = MAX_VIOLATIONS_BYTES
    for field, wrong in fields.items():
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=cut(field, MAX_NAME_BYTES), description=cut(wrong, MAX_NAME_BYTES)
        )
        left -= violation.ByteSize()
        if left < 0:
            return
        yield violation


def cut(text: str, most: int) -> str:
    """A text of at most so many bytes; an ellipsis says that there was more."""
    if len(text) <= most // 4:
        return text
    data = text.encode()
    return text if len(data) <= most else data[: most - len("…".encode())].decode(errors="ignore") + "…"


def pack(message: Message) -> Any:
    """A detail as Any."""
    packed = Any()
    packed.Pack(message)
    return packed
