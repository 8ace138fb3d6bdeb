"""A real node between a real executor and a real gateway, with agents that need no model."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from google.protobuf.duration_pb2 import Duration
from support.boxes import boxes_tasks, door, stream, submit, trajectories
from support.services import Service, Services

from practicum.v1 import executor_pb2, executor_pb2_grpc, message_pb2, task_pb2, trajectory_pb2

Stub = executor_pb2_grpc.ExecutorServiceStub
AGENTS = [
    "--agent",
    "boxes_solver=practicum.environments.boxes.agents:solver",
    "--agent",
    "boxes_teacher=practicum.environments.boxes.agents:teacher",
    *(
        flag
        for name in ("slow_solver", "sleeper", "breaker", "talker", "impatient", "self_cancelling")
        for flag in ("--agent", f"{name}=support.agents:{name}")
    ),
]


@pytest.fixture
def gateway(services: Services) -> Service:
    return services.start("env_gateway", "--catalogue", "environments/catalogue.json")


@pytest.fixture
def executor(services: Services) -> Service:
    return services.executor()


@pytest.fixture
def node(services: Services, executor: Service, gateway: Service) -> Service:
    return services.node("node", executor, gateway, *AGENTS)


@pytest.fixture
def stub(executor: Service, node: Service) -> Iterator[Stub]:
    with door(executor.address) as stub:
        yield stub


def without_environment(kind: str, **config: object) -> task_pb2.Task:
    agent = task_pb2.AgentSpec(kind=kind, config_json=json.dumps(config))
    return task_pb2.Task(id="t0", instruction="do it", agent=agent)


def test_a_scripted_agent_solves_tasks_and_its_steps_are_told(stub: Stub) -> None:
    """Actions, observations, timings, reward: as they happened."""
    submit(stub, boxes_tasks(4))
    for trajectory in trajectories(stub, 4):
        assert (trajectory.outcome, trajectory.reward, trajectory.success) == (
            trajectory_pb2.OUTCOME_FINISHED,
            1.0,
            True,
        )
        *opened, last = trajectory.steps
        assert [step.action.tool_calls[0].name for step in opened] == ["box__open"] * len(opened)
        assert [step.observations[0].text.split()[0] for step in opened] == ["box"] * (len(opened) - 1) + ["coin"]
        assert last.action.text == f"<answer>{trajectory.final_answer}</answer>"
        assert trajectory.node_id == "node"


def test_the_impatient_teacher_gives_up_as_often_as_it_should(stub: Stub) -> None:
    """Before each call with probability 0.6: of one to three boxes, about a fifth are solved."""
    submit(
        stub, [t for i in range(4) for t in boxes_tasks(25, "boxes_teacher", prefix=f"t{i}-", give_up=0.6, seed=None)]
    )
    solved = sum(t.success for t in trajectories(stub, 100))
    assert 5 <= solved <= 40


def test_the_journal_tells_a_rollout_from_task_to_end(stub: Stub) -> None:
    """In order, and without what scoring knows."""
    (task,) = boxes_tasks(1)
    submit(stub, [task])
    trajectories(stub, 1)
    watch = stub.WatchSession(executor_pb2.WatchSessionRequest(session_id="t0/0"), timeout=10)
    said = [m for response in watch for m in response.messages]
    assert [m.sequence for m in said] == list(range(1, len(said) + 1))
    assert said[0].task.instruction == task.instruction
    assert not any(b"ground_truth" in m.SerializeToString() for m in said)


def test_an_agent_with_a_bug_ends_its_rollout_and_no_other(stub: Stub) -> None:
    """The error says whose fault it was."""
    submit(stub, [without_environment("breaker"), *boxes_tasks(3, prefix="good")])
    ended = {t.task_id: t for t in trajectories(stub, 4)}
    broken = ended.pop("t0")
    assert broken.outcome == trajectory_pb2.OUTCOME_AGENT_ERROR
    assert (broken.error.source, broken.error.reason) == (message_pb2.ERROR_SOURCE_AGENT, "KeyError")
    assert all(t.success for t in ended.values())


@pytest.mark.parametrize(("kind", "reason"), [("impatient", "TimeoutError"), ("self_cancelling", "CancelledError")])
def test_what_an_agent_gives_up_itself_is_its_own_error(kind: str, reason: str, stub: Stub) -> None:
    """Neither the rollout's deadline nor a cancellation; and its lease is not held for ever."""
    submit(stub, [without_environment(kind)])
    (trajectory,) = trajectories(stub, 1)
    assert (trajectory.outcome, trajectory.error.reason) == (trajectory_pb2.OUTCOME_AGENT_ERROR, reason)


def test_logs_tell_where_an_agent_failed_and_nothing_that_it_said(node: Service, stub: Stub) -> None:
    """The trajectory holds the rest."""
    submit(stub, [without_environment("breaker")])
    trajectories(stub, 1)
    assert "agents.py:" in node.text
    assert "a bug of the agent" not in node.text


def test_an_unknown_environment_ends_a_rollout_without_a_reward(stub: Stub) -> None:
    """A task that names it would fail on every node: it is not tried again."""
    (task,) = boxes_tasks(1)
    task.environment.name = "nowhere"
    submit(stub, [task])
    (trajectory,) = trajectories(stub, 1)
    assert trajectory.outcome == trajectory_pb2.OUTCOME_INFRASTRUCTURE_ERROR
    assert "nowhere" in trajectory.error.detail


def test_a_gateway_that_is_down_is_waited_for(gateway: Service, stub: Stub) -> None:
    """No attempt is wasted on it, and it is never a silent zero."""
    gateway.kill()
    submit(stub, boxes_tasks(20))
    gateway.launch()
    gateway.wait_serving()
    assert {(t.reward, t.attempt) for t in trajectories(stub, 20)} == {(1.0, 1)}


def test_a_gateway_that_stays_down_is_an_infrastructure_error(gateway: Service, stub: Stub) -> None:
    """After a step's time, on each attempt."""
    gateway.kill()
    (task,) = boxes_tasks(1)
    task.retry.CopyFrom(task_pb2.RetryPolicy(max_attempts=2))
    task.limits.step_deadline.CopyFrom(Duration(seconds=1))
    submit(stub, [task])
    (trajectory,) = trajectories(stub, 1)
    assert (trajectory.outcome, trajectory.attempt) == (trajectory_pb2.OUTCOME_INFRASTRUCTURE_ERROR, 2)
    assert trajectory.error.source == message_pb2.ERROR_SOURCE_ENVIRONMENT


def test_a_rollout_ends_at_its_deadline(stub: Stub) -> None:
    """With the steps it made."""
    task = without_environment("sleeper")
    task.limits.rollout_deadline.CopyFrom(Duration(seconds=1))
    submit(stub, [task])
    (trajectory,) = trajectories(stub, 1)
    assert trajectory.outcome == trajectory_pb2.OUTCOME_DEADLINE
    assert [step.action.text for step in trajectory.steps] == ["I sleep"]


def test_an_agent_that_does_too_much_ends_at_its_last_step(stub: Stub) -> None:
    """Ten by default."""
    submit(stub, [without_environment("talker", count=20, bytes=1)])
    (trajectory,) = trajectories(stub, 1)
    assert trajectory.outcome == trajectory_pb2.OUTCOME_MAX_STEPS
    assert len(trajectory.steps) == 10


def test_a_large_trajectory_arrives_whole(stub: Stub) -> None:
    """Uploaded beside the stream, and read in parts."""
    submit(stub, [without_environment("talker", count=4, bytes=400_000)])
    body = b""
    for event in stream(stub, "reader"):
        if event.HasField("group_complete"):
            break
        body += event.part.data
    trajectory = trajectory_pb2.Trajectory.FromString(body)
    assert [len(step.action.text) for step in trajectory.steps] == [400_000] * 4


def test_cancel_stops_the_agent(node: Service, stub: Stub) -> None:
    """The slot is free again."""
    submit(stub, [without_environment("sleeper")])
    running = next(message for message in said(stub, "t0/0") if message.HasField("action"))
    assert running.action.text == "I sleep"
    stub.CancelTasks(executor_pb2.CancelTasksRequest(task_ids=["t0"]))
    (trajectory,) = trajectories(stub, 1)
    assert trajectory.outcome == trajectory_pb2.OUTCOME_CANCELLED
    assert node.stop(timeout=5) == 0, "the agent went on"


def said(stub: Stub, session_id: str) -> Iterator[message_pb2.Message]:
    """A session's messages, as they come."""
    for response in stub.WatchSession(executor_pb2.WatchSessionRequest(session_id=session_id), timeout=20):
        yield from response.messages


def test_a_stopped_node_hands_its_rollouts_over(
    services: Services, executor: Service, gateway: Service, node: Service, stub: Stub
) -> None:
    """What can't end in its drain time begins again elsewhere at once, not after a lease."""
    submit(stub, [without_environment("sleeper")])
    next(message for message in said(stub, "t0/0") if message.HasField("action"))
    assert node.stop() == 0
    services.node("other", executor, gateway, *AGENTS)
    assert next(m for m in said(stub, "t0/0") if m.attempt == 2)


def test_a_wrong_agent_is_named_at_start(services: Services) -> None:
    """Exit status 2, one sentence, no traceback."""
    node = services.start("node", "--agent", "mine=no_such_module:run", wait=False)
    assert node.process is not None and node.process.wait(20) == 2
    assert "no_such_module" in node.text and "Traceback" not in node.text
