"""Trajectories too large to travel inline, between their upload and the result that names them."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Callable

from google.protobuf.message import DecodeError

from practicum.common.errors import FailedPrecondition, InvalidArgument
from practicum.executor.tasks.nesting import TOO_DEEP, is_deep_trajectory
from practicum.v1 import dispatch_pb2, message_pb2, trajectory_pb2

MAX_BYTES = 256 * 1024 * 1024
MAX_BYTES_IN_ALL = 1024 * 1024 * 1024


class Uploads:
    """Uploaded bytes by lease and digest. What is never named is dropped, oldest first, when there are too many."""

    def __init__(self, stands: Callable[[str], bool]) -> None:
        """`stands` tells whether a lease is somebody's."""
        self._stands = stands
        self._bodies: dict[tuple[str, str], bytes] = {}

    async def receive(self, parts: AsyncIterator[dispatch_pb2.UploadTrajectoryRequest]) -> int:
        """Keeps one upload. Returns its size in bytes."""
        lease_id = digest = ""
        data = bytearray()
        async for part in parts:
            lease_id, digest = lease_id or part.lease_id, digest or part.digest
            if not self._stands(lease_id):
                raise FailedPrecondition(f"lease {lease_id!r} is nobody's", reason="LEASE_LOST")
            data += part.data
            if len(data) > MAX_BYTES:
                raise InvalidArgument({"data": f"is more than {MAX_BYTES} bytes"}, reason="TRAJECTORY_TOO_LARGE")
        body = bytes(data)
        found = await asyncio.to_thread(digest_of, body)
        if digest != found:
            raise InvalidArgument({"digest": f"is {digest!r}, the bytes have {found}"}, reason="DIGEST_MISMATCH")
        self._bodies[lease_id, digest] = body
        self._drop_oldest()
        return len(body)

    def _drop_oldest(self) -> None:
        for key in [key for key in self._bodies if not self._stands(key[0])]:
            del self._bodies[key]
        while sum(map(len, self._bodies.values())) > MAX_BYTES_IN_ALL:
            del self._bodies[next(iter(self._bodies))]

    def trajectory_of(
        self, finished: dispatch_pb2.Finished, *, task_id: str, attempt: int
    ) -> tuple[trajectory_pb2.Trajectory, bytes]:
        """The trajectory that a result of this attempt holds or names, and its bytes. FailedAttempt when there is none,
        or it is another's."""
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
