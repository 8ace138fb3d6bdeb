"""Failed calls, told so that a person knows what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

RETRY = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED}


class CallFailed(Exception):
    """A call that failed. `code`: gRPC's; `reason`: stable, for programs; `fields`: what is wrong, by field."""

    def __init__(self, code: grpc.StatusCode, detail: str, *, reason: str, fields: dict[str, str]) -> None:
        listed = "".join(f"\n  {field}: {text}" for field, text in fields.items())
        super().__init__(f"{reason or code.name}: {'these fields are wrong:' + listed if fields else detail}")
        self.code = code
        self.reason = reason
        self.fields = fields

    @property
    def may_retry(self) -> bool:
        """Whether the same call may succeed a little later."""
        return self.code in RETRY


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
    status = rpc_status.from_call(error)
    if status is None and code is grpc.StatusCode.UNAVAILABLE:
        detail = f"nothing answers at {address}; is the service up, and is the address right? ({detail})"
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for packed in status.details if status is not None else ():
        for message in (info, bad):
            if packed.Is(message.DESCRIPTOR):
                packed.Unpack(message)
    fields = {violation.field: violation.description for violation in bad.field_violations}
    return CallFailed(code, detail, reason=info.reason, fields=fields)
