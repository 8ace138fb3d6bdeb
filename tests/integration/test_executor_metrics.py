"""The executor's metrics: what they tell of queues, nodes, attempts, commits, consumers and leadership."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue

import grpc
import pytest
from support.metrics import Samples, scrape, scrape_until
from support.scripted_node import ScriptedNode
from support.services import Service, Services, unused_address

from practicum.client import AgentSpec, ExecutorClient, Task
from practicum.executor.observing.tally import MAX_REASONS, Tally
from practicum.v1 import executor_pb2, executor_pb2_grpc, message_pb2, task_pb2


@pytest.fixture
def metrics_address() -> str:
    return unused_address()


@pytest.fixture
def executor(services: Services, metrics_address: str) -> Service:
    return services.executor("--metrics-address", metrics_address, "--max-backlog", "1000")


@pytest.fixture
def client(executor: Service) -> Iterator[ExecutorClient]:
    with ExecutorClient(executor.address) as client:
        yield client


def task(task_id: str, *, rollouts: int = 1, queue: str = "", attempts: int = 1) -> Task:
    """One that a scripted node takes."""
    retry = task_pb2.RetryPolicy(max_attempts=attempts)
    agent = AgentSpec(kind="tool_agent")
    return Task(id=task_id, instruction="go", agent=agent, rollouts=rollouts, queue=queue, retry=retry)


def of(samples: Samples, name: str, **labels: str) -> float:
    """A sample of the executor's."""
    return samples(f"practicum_executor_{name}", **labels)


def test_queues_and_nodes_tell_how_they_stand(client: ExecutorClient, executor: Service, metrics_address: str) -> None:
    """Depth, age, loads and leases are read when they are asked for."""
    client.submit([task("a", rollouts=3, queue="urgent"), task("b", rollouts=2)])
    before = scrape(metrics_address)
    assert of(before, "queue_rollouts", queue="urgent", state="queued") == 3
    assert of(before, "queue_rollouts", queue="default", state="running") == 0
    assert of(before, "queue_oldest_age_seconds", queue="default") > 0
    assert (of(before, "backlog_rollouts"), of(before, "backlog_limit_rollouts")) == (5, 1000)
    assert before.of("practicum_executor_nodes", "state") == {"connected": 0, "draining": 0, "absent": 0}
    node = ScriptedNode(executor.address, "n1", slots=4)
    node.assignments(4)
    after = scrape(metrics_address)
    assert of(after, "queue_rollouts", state="running") == of(after, "leases") == 4
    assert of(after, "node_load", node="n1") == 1 and of(after, "node_slots", node="n1") == 4
    assert of(after, "node_running_rollouts", node="n1") == 4 and of(after, "nodes", state="connected") == 1
    assert of(after, "attempts_started_total") == of(after, "dispatch_latency_seconds_count") == 4
    assert of(after, "leader") == 1 and not after.tells("practicum_executor_leader_epoch")
    node.close()
    scrape_until(metrics_address, lambda s: of(s, "nodes", state="absent") == 1)


def test_ends_attempts_and_commits_are_counted(client: ExecutorClient, executor: Service, metrics_address: str) -> None:
    """By outcome, by reason, by queue."""
    client.submit([task("a", rollouts=2), task("b", attempts=2)])
    node = ScriptedNode(executor.address, "n1", slots=4)
    by_task = {assignment.rollout_id: assignment for assignment in node.assignments(3)}
    node.finish(by_task["a/0"])
    for name, reason in (("a/1", "TOOL_DOWN"), ("b/0", "no such thing!")):
        error = message_pb2.ErrorPayload(source=message_pb2.ERROR_SOURCE_NODE, reason=reason)
        node.bring(by_task[name], infrastructure_error=error)
    node.finish(node.assignments(1)[0])
    found = scrape_until(metrics_address, lambda s: of(s, "rollouts_ended_total") == 3)
    outcomes = {"finished": 2, "infrastructure_error": 1}
    assert found.of("practicum_executor_rollouts_ended_total", "outcome") == outcomes
    assert found.of("practicum_executor_attempts_failed_total", "reason") == {"TOOL_DOWN": 1, "OTHER": 1}
    assert of(found, "attempts_started_total") == 4 and of(found, "dispatch_latency_seconds_count") == 3
    assert of(found, "dead_letters_total", queue="default") == 1
    assert of(found, "commit_seconds_count") > 2 and of(found, "commit_seconds_sum") > 0
    assert of(found, "commit_rows_total") >= 2 + 4 + 3 * 2  # Tasks, attempts, ends with their trajectories.
    assert of(found, "commits_failed_total") == 0
    node.close()


def test_lag_is_what_a_consumer_has_before_it(client: ExecutorClient, executor: Service, metrics_address: str) -> None:
    """With and without a stream; what its filter passes over is not before it."""
    node = ScriptedNode(executor.address, "n1", slots=4)
    client.submit([task("a", rollouts=4)])
    for assignment in node.assignments(4):
        node.finish(assignment)
    reader = client.trajectories("reader")
    for _ in range(2):
        next(reader)
    lag_of = partial(Samples.of, name="practicum_executor_consumer_lag_results", label="consumer")
    scrape_until(metrics_address, lambda s: lag_of(s) == {"reader": 3})  # The first is acked, the second at hand.
    reader.close()
    with following(executor, "picky", queue="other"):
        scrape_until(metrics_address, lambda s: lag_of(s) == {"reader": 3, "picky": 0})
    node.close()


@contextmanager
def following(executor: Service, consumer: str, *, queue: str) -> Iterator[None]:
    """A stream of a consumer that wants trajectories of one queue alone."""
    frames: SimpleQueue[executor_pb2.StreamTrajectoriesRequest | None] = SimpleQueue()
    wanted = executor_pb2.TrajectoryFilter(queues=[queue])
    opened = executor_pb2.OpenConsumer(consumer=consumer, filter=wanted)
    frames.put(executor_pb2.StreamTrajectoriesRequest(open=opened))
    with grpc.insecure_channel(executor.address) as channel:
        call = executor_pb2_grpc.ExecutorServiceStub(channel).StreamTrajectories(iter(frames.get, None))
        yield
        frames.put(None)
        call.cancel()


def test_a_standby_says_that_it_does_not_lead(services: Services, postgres_url: str, metrics_address: str) -> None:
    """And tells of itself once it leads, with a higher epoch."""
    other = unused_address()
    flags = ("--database", postgres_url, "--leader-lease-seconds", "3", "--metrics-address")
    first = services.start("executor", *flags, other)
    epoch = of(scrape_until(other, lambda s: of(s, "leader") == 1), "leader_epoch")
    services.start("executor", *flags, metrics_address)
    waiting = scrape(metrics_address)
    assert waiting.tells("practicum_executor_leader") and of(waiting, "leader") == 0
    first.kill()
    assert of(scrape_until(metrics_address, lambda s: of(s, "leader") == 1), "leader_epoch") > epoch


def test_reasons_that_nodes_make_up_are_bounded() -> None:
    """A scrape stays small."""
    tally = Tally()
    for number in range(10 * MAX_REASONS):
        tally.failed(f"REASON_{number}")
    assert len(tally.failures) == MAX_REASONS + 1 and sum(tally.failures.values()) == 10 * MAX_REASONS
