"""Failed calls, told so that a person knows what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from practicum.v1 import executor_pb2

RETRY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED}


class CallFailed(Exception):
    """A call that failed. `code`: gRPC's; `reason`: stable, for programs; `fields`: what is wrong, by field;
    `metadata`: facts by name; `retry_after`: after how many seconds the service wants the call repeated, if it said."""

    def __init__(
        self,
        code: grpc.StatusCode,
        detail: str,
        *,
        reason: str,
        fields: Mapping[str, str],
        metadata: Mapping[str, str],
        retry_after: float | None,
    ) -> None:
        listed = "".join(f"\n  {field}: {text}" for field, text in fields.items())
        super().__init__(f"{reason or code.name}: {'these fields are wrong:' + listed if fields else detail}")
        self.code = code
        self.detail = detail
        self.reason = reason
        self.fields = dict(fields)
        self.metadata = dict(metadata)
        self.retry_after = retry_after

    @property
    def may_retry(self) -> bool:
        """Whether the call may succeed a little later. It may have been carried out: repeat what is idempotent."""
        return self.code in RETRY


class SubmitFailed(CallFailed):
    """A submit that failed part-way. `accepted`: the tasks of its earlier batches, which will run."""

    def __init__(self, error: CallFailed, accepted: Sequence[executor_pb2.SubmittedTask]) -> None:
        fields = {counted_on(field, len(accepted)): text for field, text in error.fields.items()}
        super().__init__(
            error.code,
            error.detail,
            reason=error.reason,
            fields=fields,
            metadata=error.metadata,
            retry_after=error.retry_after,
        )
        self.accepted = accepted

    def __str__(self) -> str:
        more = f"\n{len(self.accepted)} tasks of earlier batches were accepted" if self.accepted else ""
        return super().__str__() + more


def counted_on(field: str, before: int) -> str:
    """A field of a batch, such as tasks[3].id, with the index among all tasks."""
    return re.sub(r"^tasks\[(\d+)\]", lambda found: f"tasks[{int(found[1]) + before}]", field)


@contextmanager
def told(address: str) -> Iterator[None]:
    """Raises a gRPC error of a call to `address` as CallFailed."""
    try:
        yield
    except grpc.RpcError as error:
        raise failure(error, address) from error


def failure(error: grpc.RpcError, address: str) -> CallFailed:
    """A gRPC error, with its details unpacked."""
    code, detail = error.code(), error.details() or ""
    if code is grpc.StatusCode.CANCELLED:
        code = grpc.StatusCode.UNAVAILABLE  # So a server ends calls that outlast its grace: to the caller it is gone.
    status = rpc_status.from_call(error)
    if status is None and code is grpc.StatusCode.UNAVAILABLE:
        detail = f"nothing answers at {address}; is the service up, and is the address right? ({detail})"
    info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    for packed in status.details if status is not None else ():
        for message in (info, bad, retry):
            packed.Unpack(message)
    after = retry.retry_delay.ToTimedelta().total_seconds() if retry.HasField("retry_delay") else None
    fields = {violation.field: violation.description for violation in bad.field_violations}
    return CallFailed(code, detail, reason=info.reason, fields=fields, metadata=info.metadata, retry_after=after)
