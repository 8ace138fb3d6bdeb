"""What nodes upload is bounded, whatever they send."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

import pytest

from practicum.common.errors import ResourceExhausted
from practicum.executor.dispatching import uploads
from practicum.executor.dispatching.uploads import FailedAttempt, Uploads
from practicum.v1 import dispatch_pb2, trajectory_pb2


def body_of(number: int) -> bytes:
    trajectory = trajectory_pb2.Trajectory(rollout_id="t/0", task_id="t", group_id="t", attempt=1, reward=number)
    return trajectory.SerializeToString()


def digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


async def parts(body: bytes, lease_id: str = "lease") -> AsyncIterator[dispatch_pb2.UploadTrajectoryRequest]:
    """In one."""
    yield dispatch_pb2.UploadTrajectoryRequest(lease_id=lease_id, digest=digest_of(body), data=body)


def named(body: bytes) -> dispatch_pb2.Finished:
    return dispatch_pb2.Finished(lease_id="lease", rollout_id="t/0", trajectory_digest=digest_of(body))


async def test_a_lease_has_one_upload() -> None:
    """The last; who sends many fills nothing."""
    kept = Uploads(lambda lease_id: True)
    for number in (1, 2):
        await kept.receive(parts(body_of(number)))
    with pytest.raises(FailedAttempt):
        kept.trajectory_of(named(body_of(1)), task_id="t", attempt=1)
    trajectory, _ = kept.trajectory_of(named(body_of(2)), task_id="t", attempt=1)
    assert trajectory.reward == 2
    with pytest.raises(FailedAttempt):
        kept.trajectory_of(named(body_of(2)), task_id="t", attempt=1)


async def test_what_comes_at_once_is_bounded_and_is_counted_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that was broken off counts no more."""
    monkeypatch.setattr(uploads, "MAX_BYTES_IN_ALL", 100)
    kept = Uploads(lambda lease_id: True)
    held = Held()
    slow = asyncio.create_task(kept.receive(held.parts()))
    await held.counted.wait()
    with pytest.raises(ResourceExhausted):
        await kept.receive(parts(b"b" * 40, "other"))
    held.broken.set()
    with pytest.raises(ConnectionError):
        await slow
    assert await kept.receive(parts(b"b" * 40, "other")) == 40


class Held:
    """A stream of 80 bytes that then waits, until it breaks."""

    def __init__(self) -> None:
        self.counted, self.broken = asyncio.Event(), asyncio.Event()

    async def parts(self) -> AsyncIterator[dispatch_pb2.UploadTrajectoryRequest]:
        """The stream."""
        yield dispatch_pb2.UploadTrajectoryRequest(lease_id="lease", data=b"a" * 80)
        self.counted.set()
        await self.broken.wait()
        raise ConnectionError
