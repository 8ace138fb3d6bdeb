"""An executor and an inference proxy in one, small enough to test the trainer alone: what is published is loaded into
transformers, and a rollout is one turn of eight tokens sampled from it. Reward: how many of them have low ids."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from grpc import aio
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

from practicum.common.interceptor import ErrorInterceptor
from practicum.inference_proxy.sessions import Sessions
from practicum.v1 import executor_pb2, executor_pb2_grpc, inference_pb2, inference_pb2_grpc, task_pb2, trajectory_pb2

DIGEST = "sha256:toy"
TOKENS, LOW = 8, 256
WAVE = 16


@dataclass
class Toy:
    """What both services share. `wrong_from`: from this version on, tokens are scored wrongly, to break a probe.
    `failing`: the share of rollouts that end with an infrastructure error. `digest`: of the tokens' tokenizer."""

    model_path: Path
    wrong_from: int = 1 << 60
    failing: float = 0.0
    digest: str = DIGEST
    version: int = 0
    versions: list[int] = field(default_factory=list)
    stored: list[trajectory_pb2.Trajectory] = field(default_factory=list)
    waiting: list[tuple[task_pb2.Task, str]] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    weights: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.loop = asyncio.get_running_loop()
        self.random = random.Random(0)
        self.model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(self.model_path)).float().eval()

    def add(self, trajectories: Iterable[trajectory_pb2.Trajectory]) -> None:
        """Stores trajectories as if their rollouts had just ended. May be called from any thread."""

        async def stored() -> None:
            async with self.changed:
                self.stored += trajectories
                self.changed.notify_all()

        asyncio.run_coroutine_threadsafe(stored(), self.loop).result(10)

    async def work(self) -> None:
        """Runs what waits, some rollouts at a time, for ever."""
        while True:
            async with self.changed:
                await self.changed.wait_for(lambda: self.waiting)
                wave, self.waiting = self.waiting[:WAVE], self.waiting[WAVE:]
            async with self.weights:
                ended = await asyncio.to_thread(self.sample, wave)
            async with self.changed:
                self.stored += ended
                self.changed.notify_all()

    @torch.no_grad()
    def sample(self, wave: list[tuple[task_pb2.Task, str]]) -> list[trajectory_pb2.Trajectory]:
        """Eight tokens for each rollout."""
        ids = torch.tensor([[1 + len(task.instruction) % 9, 5, 7, 3] for task, _ in wave])
        prompt, logprobs = ids.shape[1], []
        for _ in range(TOKENS):
            scores = self.model(input_ids=ids).logits[:, -1].float().log_softmax(-1)
            drawn = torch.multinomial(scores.exp(), 1)
            logprobs.append(scores.gather(1, drawn))
            ids = torch.cat([ids, drawn], dim=1)
        scored = torch.cat(logprobs, dim=1)
        rows = zip(wave, ids[:, :prompt], ids[:, prompt:], scored, strict=True)
        return [self.trajectory(*item, read, said, score) for item, read, said, score in rows]

    def trajectory(
        self, task: task_pb2.Task, rollout_id: str, read: torch.Tensor, said: torch.Tensor, scores: torch.Tensor
    ) -> trajectory_pb2.Trajectory:
        """The rollout's end."""
        nodes = [
            trajectory_pb2.TokenNode(role=trajectory_pb2.TOKEN_ROLE_PROMPT, token_ids=packed(read, torch.int32)),
            trajectory_pb2.TokenNode(
                parent=0,
                role=trajectory_pb2.TOKEN_ROLE_SAMPLED,
                token_ids=packed(said, torch.int32),
                logprobs=packed(scores, torch.float32),
                version_spans=[trajectory_pb2.VersionSpan(version=self.version, start=0, end=TOKENS)],
            ),
        ]
        failed = self.random.random() < self.failing
        reward = float((said < LOW).float().mean())
        return trajectory_pb2.Trajectory(
            task_id=task.id,
            rollout_id=rollout_id,
            group_id=task.id,
            labels=task.labels,
            reward=reward,
            success=reward >= 1.0,
            outcome=trajectory_pb2.OUTCOME_INFRASTRUCTURE_ERROR if failed else trajectory_pb2.OUTCOME_FINISHED,
            token_graphs=[trajectory_pb2.TokenGraph(nodes=nodes, tokenizer_digest=self.digest)],
        )


def packed(tensor: torch.Tensor, kind: torch.dtype) -> bytes:
    """Little-endian, 4 bytes each."""
    return bytes(tensor.to(kind).numpy().tobytes())


class ToyExecutor(executor_pb2_grpc.ExecutorServiceServicer):
    """Keeps everything in memory. Only what the trainer calls is there."""

    def __init__(self, toy: Toy) -> None:
        self._toy = toy

    async def SubmitTasks(self, request: executor_pb2.SubmitTasksRequest, context: Any) -> Any:
        async with self._toy.changed:
            for task in request.tasks:
                self._toy.waiting += [(task, f"{task.id}/{index}") for index in range(max(task.rollouts, 1))]
            self._toy.changed.notify_all()
        return executor_pb2.SubmitTasksResponse()

    async def CancelTasks(self, request: executor_pb2.CancelTasksRequest, context: Any) -> Any:
        wanted = set(request.labels.items())
        self._toy.waiting = [item for item in self._toy.waiting if not wanted <= set(item[0].labels.items())]
        return executor_pb2.CancelTasksResponse()

    async def DeleteConsumer(self, request: executor_pb2.DeleteConsumerRequest, context: Any) -> Any:
        return executor_pb2.DeleteConsumerResponse()

    async def StreamTrajectories(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        opening = await anext(requests)
        wanted, place = set(opening.open.filter.labels.items()), 0
        while True:
            async with self._toy.changed:
                while not (new := self._toy.stored[place:]):
                    await self._toy.changed.wait()
            events = [
                executor_pb2.TrajectoryEvent(cursor=place + index + 1, trajectory=trajectory)
                for index, trajectory in enumerate(new)
                if wanted <= set(trajectory.labels.items())
            ]
            place += len(new)
            if events:
                yield executor_pb2.StreamTrajectoriesResponse(events=events)


class ToyProxy(inference_pb2_grpc.InferenceServiceServicer):
    """Serves one model. Its sessions are the real proxy's, which refuses what it has closed."""

    def __init__(self, toy: Toy) -> None:
        self._toy = toy
        self._sessions = Sessions()

    async def OpenSession(self, request: Any, context: Any) -> Any:
        self._sessions.open(request.session_id, attempt=request.attempt, agent_id=request.agent_id)
        return inference_pb2.InferenceServiceOpenSessionResponse(tokenizer_digest=DIGEST)

    async def CloseSession(self, request: Any, context: Any) -> Any:
        self._sessions.close(request.session_id, request.attempt, discard=request.discard)
        return inference_pb2.InferenceServiceCloseSessionResponse()

    async def GetPolicyVersion(self, request: Any, context: Any) -> Any:
        return inference_pb2.GetPolicyVersionResponse(version=self._toy.version)

    async def UpdateWeights(self, request: inference_pb2.UpdateWeightsRequest, context: Any) -> Any:
        assert request.version > self._toy.version
        loaded = load_file(Path(request.path) / "model.safetensors")
        async with self._toy.weights:
            self._toy.model.load_state_dict(loaded)
            self._toy.version = request.version
            self._toy.versions.append(request.version)
        return inference_pb2.UpdateWeightsResponse(version=request.version, confirmed_engines=1)

    async def Generate(self, request: inference_pb2.GenerateRequest, context: Any) -> AsyncIterator[Any]:
        ids = torch.frombuffer(bytearray(request.prompt_token_ids), dtype=torch.int32).long()[None]
        async with self._toy.weights:
            with torch.no_grad():
                scores = self._toy.model(input_ids=ids).logits[:, :-1].float().log_softmax(-1)
        found = scores.gather(2, ids[:, 1:, None])[0, :, 0]
        if self._toy.version >= self._toy.wrong_from:
            found += 0.01
        yield inference_pb2.GenerateResponse(
            finish_reason="length", prompt_logprobs=packed(torch.cat([torch.zeros(1), found]), torch.float32)
        )


@contextmanager
def toy_neighbours(toy_of: Callable[[], Toy]) -> Iterator[tuple[Toy, str]]:
    """Both services on one port, in a thread with a loop of its own; the toy, and the address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="toy")
    thread.start()

    async def begin() -> tuple[Toy, aio.Server, str, asyncio.Task[None]]:
        toy, server = toy_of(), aio.server(interceptors=[ErrorInterceptor()])
        executor_pb2_grpc.add_ExecutorServiceServicer_to_server(ToyExecutor(toy), server)  # type: ignore[abstract]
        inference_pb2_grpc.add_InferenceServiceServicer_to_server(ToyProxy(toy), server)  # type: ignore[abstract]
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return toy, server, f"127.0.0.1:{port}", asyncio.create_task(toy.work())

    async def end(server: aio.Server, work: asyncio.Task[None]) -> None:
        await server.stop(None)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    toy, server, address, work = asyncio.run_coroutine_threadsafe(begin(), loop).result(60)
    try:
        yield toy, address
    finally:
        asyncio.run_coroutine_threadsafe(end(server, work), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
