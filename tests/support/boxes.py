"""Tasks of the bundled environment, and the doors to submit them and read what came of them."""

from __future__ import annotations

import json
import queue
import random
from collections.abc import Iterator
from contextlib import contextmanager

import grpc

from practicum.environments.boxes.game import draw
from practicum.environments.boxes.tasks import task
from practicum.v1 import executor_pb2, executor_pb2_grpc, task_pb2, trajectory_pb2


def boxes_tasks(count: int, kind: str = "boxes_solver", *, prefix: str = "t", **config: object) -> list[task_pb2.Task]:
    """So many games for an agent."""
    source = random.Random(7)
    agent = task_pb2.AgentSpec(kind=kind, config_json=json.dumps(config))
    return [task(draw(source), f"{prefix}{index}", agent) for index in range(count)]


@contextmanager
def door(address: str) -> Iterator[executor_pb2_grpc.ExecutorServiceStub]:
    """The executor's calls."""
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        grpc.channel_ready_future(channel).result(timeout=30)
        yield executor_pb2_grpc.ExecutorServiceStub(channel)


def submit(stub: executor_pb2_grpc.ExecutorServiceStub, tasks: list[task_pb2.Task]) -> list[str]:
    """Submits; returns the rollouts' ids."""
    answer = stub.SubmitTasks(executor_pb2.SubmitTasksRequest(tasks=tasks), timeout=20)
    return [rollout for task in answer.tasks for rollout in task.rollout_ids]


def stream(
    stub: executor_pb2_grpc.ExecutorServiceStub, name: str, *, timeout: float = 60, **options: object
) -> Iterator[executor_pb2.TrajectoryEvent]:
    """A consumer's events, as they come, not acked."""
    opened = executor_pb2.OpenConsumer(consumer=name, **{"credits": 10_000} | options)  # type: ignore[arg-type]
    call = stub.StreamTrajectories(opening(opened), timeout=timeout)
    for response in call:
        yield from response.events


def opening(opened: executor_pb2.OpenConsumer) -> Iterator[executor_pb2.StreamTrajectoriesRequest]:
    """Opens a stream, and then says nothing."""
    requests: queue.SimpleQueue[executor_pb2.StreamTrajectoriesRequest] = queue.SimpleQueue()
    requests.put(executor_pb2.StreamTrajectoriesRequest(open=opened))
    return iter(requests.get, None)  # type: ignore[arg-type]


def trajectories(
    stub: executor_pb2_grpc.ExecutorServiceStub, count: int, *, name: str = "reader", timeout: float = 60
) -> list[trajectory_pb2.Trajectory]:
    """The first so many."""
    found = []
    for event in stream(stub, name, timeout=timeout):
        if event.HasField("trajectory"):
            found.append(event.trajectory)
            if len(found) == count:
                break
    return found
