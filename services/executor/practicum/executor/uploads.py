"""Trajectories too large to travel inline, between their upload and the result that names them."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

from google.protobuf.message import DecodeError

from practicum.common.errors import InvalidArgument
from practicum.v1 import dispatch_pb2, message_pb2, trajectory_pb2

MAX_UPLOADS = 1024


class Uploads:
    """Uploaded bytes by lease and digest. What is never named is dropped, oldest first."""

    def __init__(self) -> None:
        self._bodies: dict[tuple[str, str], bytes] = {}

    async def receive(self, parts: AsyncIterator[dispatch_pb2.UploadTrajectoryRequest]) -> int:
        """Keeps one upload. Returns its size in bytes."""
        lease_id = digest = ""
        data = bytearray()
        async for part in parts:
            lease_id, digest = lease_id or part.lease_id, digest or part.digest
            data += part.data
        found = digest_of(bytes(data))
        if not lease_id or digest != found:
            raise InvalidArgument({"digest": f"is {digest!r}, the bytes have {found}"}, reason="DIGEST_MISMATCH")
        while len(self._bodies) >= MAX_UPLOADS:
            del self._bodies[next(iter(self._bodies))]
        self._bodies[lease_id, digest] = bytes(data)
        return len(data)

    def trajectory_of(self, finished: dispatch_pb2.Finished) -> tuple[trajectory_pb2.Trajectory, bytes]:
        """The trajectory that a result holds or names, and its bytes. FailedAttempt when there is none."""
        if finished.HasField("infrastructure_error"):
            raise FailedAttempt(finished.infrastructure_error)
        body: bytes | None = finished.trajectory
        if finished.HasField("trajectory_digest"):
            body = self._bodies.pop((finished.lease_id, finished.trajectory_digest), None)
        if body is None:
            raise failed("UPLOAD_MISSING", f"no upload of {finished.trajectory_digest} came before the result")
        try:
            trajectory = trajectory_pb2.Trajectory.FromString(body)
        except DecodeError as error:
            raise failed("TRAJECTORY_MALFORMED", "the result is not a serialized Trajectory") from error
        if trajectory.rollout_id != finished.rollout_id:
            raise failed("TRAJECTORY_MALFORMED", f"the trajectory says rollout {trajectory.rollout_id!r}")
        return trajectory, body


class FailedAttempt(Exception):
    """A result without a trajectory: an infrastructure error."""

    def __init__(self, error: message_pb2.ErrorPayload) -> None:
        super().__init__(error.reason)
        self.error = error


def failed(reason: str, detail: str) -> FailedAttempt:
    """A result that its node made wrongly."""
    source = message_pb2.ERROR_SOURCE_NODE
    return FailedAttempt(message_pb2.ErrorPayload(source=source, reason=reason, detail=detail))


def digest_of(data: bytes) -> str:
    """`sha256:…`."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
