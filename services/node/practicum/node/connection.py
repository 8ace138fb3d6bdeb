"""The node's stream to the executor: dials, registers, heartbeats, and dials again when it breaks."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import grpc
import structlog
from grpc import aio

from practicum.common.errors import ConfigError
from practicum.common.executors import Executors
from practicum.node.deadline import seconds_of
from practicum.node.failures import reason_of
from practicum.node.outbox import Outbox, Upload
from practicum.v1 import dispatch_pb2, dispatch_pb2_grpc, message_pb2

log = structlog.get_logger(__name__)

FIRST_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 5.0
# Where there are several executors one of them leads soon, and leases run on.
MAX_SEARCH_SECONDS = 0.5
RETRY_SECONDS = 1.0
REFUSED = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT)
PART_BYTES = 1024 * 1024

Stream: TypeAlias = aio.StreamStreamCall[dispatch_pb2.ConnectRequest, dispatch_pb2.ConnectResponse]


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a node says of itself."""

    node_id: str
    slots: int
    agent_kinds: Sequence[str]
    labels: Mapping[str, str]
    incarnation: str = field(default_factory=lambda: uuid.uuid4().hex)


class Work(Protocol):
    """Who does what the executor asks for."""

    def assign(self, assignment: dispatch_pb2.Assignment) -> None:
        """Run a rollout."""

    def stop(self, lease_id: str) -> None:
        """Stop one, and say nothing more of it."""

    def deliver(self, message: message_pb2.Message) -> None:
        """Something was said in a session."""

    @property
    def running(self) -> int:
        """Rollouts at work."""


class Connection:
    """Keeps the node connected."""

    def __init__(self, executors: Executors, introduction: Introduction, outbox: Outbox, work: Work) -> None:
        self._executors = executors
        self._introduction = introduction
        self._outbox = outbox
        self._work = work
        self._draining = False

    def drain(self) -> None:
        """Says that the node takes nothing new."""
        self._draining = True
        self._outbox.wake()

    async def run(self) -> None:
        """Connects, and connects again, until it is cancelled."""
        backoff = FIRST_BACKOFF_SECONDS
        while True:
            began, address = time.monotonic(), self._executors.address
            self._executors.failed(address, await self._stream_to(address))
            if time.monotonic() - began > MAX_BACKOFF_SECONDS:
                backoff = FIRST_BACKOFF_SECONDS
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, MAX_SEARCH_SECONDS if self._executors.several else MAX_BACKOFF_SECONDS)

    async def upload(self, upload: Upload) -> None:
        """Sends a large trajectory, until the executor has it or wants it no more."""
        while True:
            address = self._executors.address
            try:
                # Where there is another executor, nobody waits for one that may never be back.
                await self._stub.UploadTrajectory(parts(upload), wait_for_ready=not self._executors.several)
                return
            except aio.AioRpcError as error:
                log.warning("upload_failed", executor=address, code=error.code().name, reason=reason_of(error))
                if error.code() in REFUSED:
                    return  # What its result is answered with says the rest.
                self._executors.failed(address, error)
                await asyncio.sleep(RETRY_SECONDS)

    @property
    def _stub(self) -> dispatch_pb2_grpc.DispatchServiceAsyncStub:
        stub: dispatch_pb2_grpc.DispatchServiceAsyncStub = dispatch_pb2_grpc.DispatchServiceStub(
            self._executors.channel
        )
        return stub

    async def _stream_to(self, address: str) -> aio.AioRpcError | None:
        """One stream. Returns what ended it, if it was an error. Raises ConfigError when no other would do better."""
        try:
            await self._stream()
            log.info("executor_ended_stream", executor=address)
        except asyncio.InvalidStateError:
            # grpc.aio says so of a write on a stream that ended.
            log.warning("executor_unreachable", executor=address, code="CUT")
        except aio.AioRpcError as error:
            if error.code() in REFUSED:
                raise ConfigError(f"{reason_of(error)}: {error.details()}") from error
            log.warning("executor_unreachable", executor=address, code=error.code().name, detail=error.details())
            return error
        return None

    async def _stream(self) -> None:
        """One stream, from registration to its end."""
        call = self._stub.Connect()
        try:
            await call.write(dispatch_pb2.ConnectRequest(register=self._register()))
            first = await self._frame(call)
            if first is None:
                return
            log.info("registered", node_id=self._introduction.node_id)
            self._outbox.say_again()
            beat_seconds = seconds_of(first.registered.heartbeat_interval)
            # Beside each other: leases end while large uploads come again, unless they are renewed.
            beside = [asyncio.create_task(work) for work in (self._speak(call, beat_seconds), self._upload_again())]
            try:
                while (frame := await self._frame(call)) is not None:
                    self._obey(frame)
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
        finally:
            call.cancel()

    async def _upload_again(self) -> None:
        """Sends what results name once more; each result follows its upload."""
        for upload in self._outbox.uploads:
            await self.upload(upload)
            self._outbox.uploaded(upload.lease_id)

    @staticmethod
    async def _frame(call: Stream) -> dispatch_pb2.ConnectResponse | None:
        """The next frame, or None at the stream's end."""
        frame = await call.read()
        return frame if isinstance(frame, dispatch_pb2.ConnectResponse) else None

    def _register(self) -> dispatch_pb2.Register:
        me = self._introduction
        return dispatch_pb2.Register(
            node_id=me.node_id,
            incarnation=me.incarnation,
            slots=me.slots,
            labels=me.labels,
            agent_kinds=me.agent_kinds,
            held_leases=self._outbox.held(),
        )

    async def _speak(
        self,
        call: Stream,
        heartbeat_seconds: float,
    ) -> None:
        """Says what is new as it comes, and that the node lives at least every `heartbeat_seconds`."""
        heartbeat_at = 0.0
        while True:
            frame = self._outbox.take()
            if time.monotonic() >= heartbeat_at:
                heartbeat_at = time.monotonic() + heartbeat_seconds
                frame.heartbeat.CopyFrom(self._heartbeat())
            frame.draining = self._draining
            await call.write(frame)
            await self._outbox.wait(max(heartbeat_at - time.monotonic(), 0.0))

    def _heartbeat(self) -> dispatch_pb2.Heartbeat:
        return dispatch_pb2.Heartbeat(lease_ids=self._outbox.held(), running=self._work.running)

    def _obey(self, frame: dispatch_pb2.ConnectResponse) -> None:
        self._draining |= frame.drain  # Said again to an executor that is started anew.
        for lease_id in (*frame.acked_leases, *frame.lost_leases):
            self._outbox.forget(lease_id)
        for lease_id in (*frame.lost_leases, *(cancel.lease_id for cancel in frame.cancels)):
            self._work.stop(lease_id)
        for assignment in frame.assignments:
            self._work.assign(assignment)
        for message in frame.messages:
            self._work.deliver(message)


def parts(upload: Upload) -> Iterator[dispatch_pb2.UploadTrajectoryRequest]:
    """An upload in parts."""
    for start in range(0, len(upload.body), PART_BYTES):
        data = upload.body[start : start + PART_BYTES]
        yield dispatch_pb2.UploadTrajectoryRequest(lease_id=upload.lease_id, digest=upload.digest, data=data)
