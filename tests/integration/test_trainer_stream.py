"""The trainer's streams and calls when its neighbours break off: cut in the middle, away for a moment, or wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc
import numpy as np
import pytest
from grpc import aio
from grpc.aio import AioRpcError, Metadata

from practicum.trainer.inference import Inference
from practicum.trainer.outcome import RunFailed
from practicum.trainer.rollouts import Rollouts
from practicum.trainer.stream import StreamBroken, send
from practicum.v1 import (
    executor_pb2,
    executor_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    task_pb2,
    trainer_pb2,
    trajectory_pb2,
)

pytestmark = pytest.mark.timeout(60)
CUTS = 8
TASK = task_pb2.Task(id="t", rollouts=CUTS)

Frames = Callable[["Executor", Any, Any], AsyncIterator[executor_pb2.StreamTrajectoriesResponse]]


class Executor(executor_pb2_grpc.ExecutorServiceServicer):
    """Streams as it is told. `asked`: what the reader sent after it had opened the stream, as text."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self.streams = 0
        self.asked: list[str] = []
        self.deletions = 0

    async def SubmitTasks(self, request: Any, context: Any) -> Any:
        return executor_pb2.SubmitTasksResponse()

    async def CancelTasks(self, request: Any, context: Any) -> Any:
        return executor_pb2.CancelTasksResponse()

    async def DeleteConsumer(self, request: Any, context: Any) -> Any:
        self.deletions += 1
        if self.deletions == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "away for a moment")
        return executor_pb2.DeleteConsumerResponse()

    async def StreamTrajectories(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        self.streams += 1
        assert (await anext(requests)).HasField("open")
        async with aclosing(self._frames(self, requests, context)) as frames:  # type: ignore[type-var]
            async for frame in frames:
                yield frame

    async def hear(self, requests: Any, count: int) -> None:
        """Waits for so many requests, or until the stream ends."""
        for _ in range(count):
            if (request := await anext(requests, None)) is None:
                return
            kind = request.WhichOneof("frame")
            self.asked.append(f"ack {request.ack.cursor}" if kind == "ack" else f"grant {request.credits.credits}")


def ended(number: int) -> executor_pb2.TrajectoryEvent:
    """A rollout of the task ended."""
    trajectory = trajectory_pb2.Trajectory(
        task_id="t", rollout_id=f"t/{number}", outcome=trajectory_pb2.OUTCOME_FINISHED
    )
    return executor_pb2.TrajectoryEvent(cursor=number + 1, trajectory=trajectory)


def frame(*events: executor_pb2.TrajectoryEvent) -> executor_pb2.StreamTrajectoriesResponse:
    return executor_pb2.StreamTrajectoriesResponse(events=events)


@asynccontextmanager
async def rollouts_of(executor: Executor, address: str) -> AsyncIterator[Rollouts]:
    """The run's side of an executor; it listens."""
    server = aio.server()
    executor_pb2_grpc.add_ExecutorServiceServicer_to_server(executor, server)  # type: ignore[abstract]
    server.add_insecure_port(address)
    await server.start()
    rollouts = Rollouts(address, run_id="run", label="run")
    try:
        await rollouts.start()
        yield rollouts
    finally:
        await rollouts.close()
        await server.stop(None)


async def test_a_stream_that_ends_with_its_last_frame_is_opened_again(address: str) -> None:
    """As at an executor's SIGTERM: the ack finds the stream ended. The group becomes whole over many such ends."""

    async def cut(executor: Executor, requests: Any, context: Any) -> AsyncIterator[Any]:
        yield frame(ended(executor.streams - 1))
        if executor.streams < CUTS:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the executor stops")
        await executor.hear(requests, 99)

    executor = Executor(cut)
    async with rollouts_of(executor, address) as rollouts:
        group = await asyncio.wait_for(rollouts.run(TASK), 30)
        assert [trajectory.rollout_id for trajectory in group] == [f"t/{number}" for number in range(CUTS)]
        assert executor.streams == CUTS


@pytest.mark.parametrize(
    "error",
    [
        asyncio.InvalidStateError("RPC already finished."),
        AioRpcError(grpc.StatusCode.INTERNAL, Metadata(), Metadata(), "Internal error from Core"),
    ],
)
async def test_both_ways_in_which_grpc_tells_a_writer_of_the_end_are_a_broken_stream(error: Exception) -> None:
    """Which of them comes is a matter of microseconds; a status of the executor's own is passed on."""

    class Ended:
        def __init__(self, error: Exception) -> None:
            self._error = error

        async def write(self, request: Any) -> None:
            raise self._error

    request = executor_pb2.StreamTrajectoriesRequest()
    with pytest.raises(StreamBroken):
        await send(Ended(error), request)  # type: ignore[arg-type]
    refused = AioRpcError(grpc.StatusCode.PERMISSION_DENIED, Metadata(), Metadata(), "no")
    with pytest.raises(AioRpcError):
        await send(Ended(refused), request)  # type: ignore[arg-type]


async def test_whoever_waits_hears_that_the_stream_can_not_be_read(address: str) -> None:
    """Here because a part is no trajectory. A group that is asked for later fails at once too."""

    async def broken(executor: Executor, requests: Any, context: Any) -> AsyncIterator[Any]:
        part = executor_pb2.TrajectoryPart(data=b"\xff\xff", last=True)
        yield frame(executor_pb2.TrajectoryEvent(cursor=1, part=part))
        await executor.hear(requests, 99)

    async with rollouts_of(Executor(broken), address) as rollouts:
        for _ in range(2):
            with pytest.raises(RunFailed, match="stream of trajectories can't be read: DecodeError"):
                await asyncio.wait_for(rollouts.run(TASK), 10)


async def test_every_event_is_paid_back_and_only_whole_trajectories_are_acked(address: str) -> None:
    """Parts share a cursor: acked before the last of them, a trajectory would be lost when the stream is cut there."""
    large = ended(5).trajectory.SerializeToString()

    def part(data: bytes, last: bool) -> executor_pb2.TrajectoryEvent:
        return executor_pb2.TrajectoryEvent(cursor=6, part=executor_pb2.TrajectoryPart(data=data, last=last))

    async def parts(executor: Executor, requests: Any, context: Any) -> AsyncIterator[Any]:
        if executor.streams == 1:
            yield frame(part(large[:3], False))
            await executor.hear(requests, 1)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "cut in the middle of a trajectory")
        yield frame(ended(2), part(large[:3], False))
        await executor.hear(requests, 2)
        complete = executor_pb2.GroupComplete(group_id="t")
        yield frame(part(large[3:], True), executor_pb2.TrajectoryEvent(cursor=7, group_complete=complete))
        await executor.hear(requests, 2)
        yield frame(ended(7))
        await executor.hear(requests, 99)

    executor = Executor(parts)
    async with rollouts_of(executor, address) as rollouts:
        group = await asyncio.wait_for(rollouts.run(task_pb2.Task(id="t", rollouts=3)), 30)
    assert [trajectory.rollout_id for trajectory in group] == ["t/2", "t/5", "t/7"]
    assert executor.asked[:5] == ["grant 1", "ack 3", "grant 2", "ack 7", "grant 2"]


async def test_stored_trajectories_are_read_over_a_cut_and_the_consumer_is_forgotten(address: str) -> None:
    """Also when the executor is away for a moment at the end."""

    async def cut(executor: Executor, requests: Any, context: Any) -> AsyncIterator[Any]:
        yield frame(ended(executor.streams - 1))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the executor stops")

    executor, stage = Executor(cut), trainer_pb2.SftStage(labels={"a": "b"}, trajectories=3)
    async with rollouts_of(executor, address) as rollouts:
        found = await asyncio.wait_for(rollouts.stored(stage, consumer="c", note=print), 30)
    assert len(found) == 3
    assert executor.deletions == 2


class Proxy(inference_pb2_grpc.InferenceServiceServicer):
    """Is away at first, and never closes a session."""

    def __init__(self) -> None:
        self.probes = 0
        self.opened: list[str] = []

    async def OpenSession(self, request: Any, context: Any) -> Any:
        self.opened.append(request.session_id)
        return inference_pb2.InferenceServiceOpenSessionResponse(tokenizer_digest="sha256:a")

    async def CloseSession(self, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "away")

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.probes += 1
        first, second = np.array([0, -1, -2], dtype="<f4"), np.array([-3], dtype="<f4")
        yield inference_pb2.GenerateResponse(prompt_logprobs=first.tobytes())
        if self.probes == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no engine serves")
        yield inference_pb2.GenerateResponse(prompt_logprobs=second.tobytes())


async def test_a_proxy_that_is_away_for_a_moment_does_not_end_a_run(address: str) -> None:
    """A probe is made again from its beginning; each asking for the digest has a session of its own."""
    proxy, server = Proxy(), aio.server()
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(proxy, server)  # type: ignore[abstract]
    server.add_insecure_port(address)
    await server.start()
    inference = Inference(address, model="")
    try:
        scored = await inference.logprobs(np.array([1, 2, 3, 4]))
        assert [await inference.tokenizer_digest("run.r.rl") for _ in range(2)] == ["sha256:a"] * 2
    finally:
        await inference.close()
        await server.stop(None)
    assert scored.tolist() == [-1, -2, -3]
    assert len(set(proxy.opened)) == 2 and all(name.startswith("run.r.rl.") for name in proxy.opened)
