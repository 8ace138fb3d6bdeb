"""Trajectories too large to travel inline, between their upload and the result that names them."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from google.protobuf.message import DecodeError

from practicum.common.errors import FailedPrecondition, InvalidArgument, ResourceExhausted
from practicum.executor.tasks.nesting import TOO_DEEP, is_deep_trajectory
from practicum.v1 import dispatch_pb2, message_pb2, trajectory_pb2

MAX_BYTES = 256 * 1024 * 1024
MAX_BYTES_IN_ALL = 1024 * 1024 * 1024


class Upload(NamedTuple):
    """Uploaded bytes, and their digest."""

    digest: str
    body: bytes


class Uploads:
    """Uploaded bytes, one upload a lease. What is never named is dropped, oldest first, when there is too much."""

    def __init__(self, stands: Callable[[str], bool]) -> None:
        """`stands` tells whether a lease is somebody's."""
        self._stands = stands
        self._kept: dict[str, Upload] = {}
        self._coming = 0

    async def receive(self, parts: AsyncIterator[dispatch_pb2.UploadTrajectoryRequest]) -> int:
        """Keeps one upload, instead of an earlier one of its lease. Returns its size in bytes."""
        lease_id = digest = ""
        data = bytearray()
        try:
            async for part in parts:
                lease_id, digest = lease_id or part.lease_id, digest or part.digest
                if not self._stands(lease_id):
                    raise FailedPrecondition(f"lease {lease_id!r} is nobody's", reason="LEASE_LOST")
                self._make_room(len(part.data))
                data += part.data
                if len(data) > MAX_BYTES:
                    raise InvalidArgument({"data": f"is more than {MAX_BYTES} bytes"}, reason="TRAJECTORY_TOO_LARGE")
            body = bytes(data)
            found = await asyncio.to_thread(digest_of, body)
        finally:
            self._coming -= len(data)
        if digest != found:
            raise InvalidArgument({"digest": f"is {digest!r}, the bytes have {found}"}, reason="DIGEST_MISMATCH")
        self._kept.pop(lease_id, None)
        self._kept[lease_id] = Upload(digest, body)
        self._drop_oldest()
        return len(body)

    def _make_room(self, size: int) -> None:
        """For a part that comes. Raises ResourceExhausted when too much comes at once."""
        if self._coming + size > MAX_BYTES_IN_ALL:
            detail = f"{self._coming} bytes are being uploaded, and {MAX_BYTES_IN_ALL} are the limit; upload it again"
            raise ResourceExhausted(detail, reason="UPLOADS_FULL", retry_after_seconds=1.0)
        self._coming += size

    def _drop_oldest(self) -> None:
        for lease_id in [lease_id for lease_id in self._kept if not self._stands(lease_id)]:
            del self._kept[lease_id]
        while sum(len(upload.body) for upload in self._kept.values()) > MAX_BYTES_IN_ALL:
            del self._kept[next(iter(self._kept))]

    def _named(self, finished: dispatch_pb2.Finished) -> bytes:
        """The bytes that a result names."""
        upload = self._kept.get(finished.lease_id)
        if upload is None or upload.digest != finished.trajectory_digest:
            raise failed("UPLOAD_MISSING", f"no upload of {finished.trajectory_digest} came before the result")
        del self._kept[finished.lease_id]
        return upload.body

    def trajectory_of(
        self, finished: dispatch_pb2.Finished, *, task_id: str, attempt: int
    ) -> tuple[trajectory_pb2.Trajectory, bytes]:
        """The trajectory that a result of this attempt holds or names, and its bytes. FailedAttempt when there is none,
        or it is another's."""
        if finished.HasField("infrastructure_error"):
            raise FailedAttempt(finished.infrastructure_error)
        body = self._named(finished) if finished.HasField("trajectory_digest") else finished.trajectory
        try:
            trajectory = trajectory_pb2.Trajectory.FromString(body)
        except DecodeError as error:
            raise failed("TRAJECTORY_MALFORMED", "the result is not a serialized Trajectory") from error
        if is_deep_trajectory(body):
            raise failed("TRAJECTORY_MALFORMED", f"the trajectory {TOO_DEEP}")
        said = trajectory.rollout_id, trajectory.task_id, trajectory.group_id, trajectory.attempt
        if said != (meant := (finished.rollout_id, task_id, task_id, attempt)):
            names = ("rollout_id", "task_id", "group_id", "attempt")
            other = [name for name, here, there in zip(names, said, meant, strict=True) if here != there]
            raise failed("TRAJECTORY_MALFORMED", f"the trajectory has another {', '.join(other)} than its assignment")
        if not math.isfinite(trajectory.reward):
            raise failed("TRAJECTORY_MALFORMED", f"the reward is {trajectory.reward}")
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
