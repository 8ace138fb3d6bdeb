"""A node dies in the middle of a rollout: the next attempt goes on in the same environment, or begins anew."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import grpc
import pytest
from support.boxes import door, submit, trajectories
from support.first_attempt import First
from support.services import Service, Services

from practicum.environments.boxes.agents import TOOL
from practicum.environments.boxes.game import Boxes
from practicum.environments.boxes.tasks import task
from practicum.v1 import (
    env_gateway_pb2,
    env_gateway_pb2_grpc,
    executor_pb2,
    executor_pb2_grpc,
    message_pb2,
    task_pb2,
    trajectory_pb2,
)

Stub = executor_pb2_grpc.ExecutorServiceStub
Gateway = env_gateway_pb2_grpc.EnvGatewayServiceStub
GAME = Boxes((17, 23, 31), 42)
SESSION = "t/0"
SOLVERS = tuple(
    flag for name in ("mindful_solver", "forgetful_solver") for flag in ("--agent", f"{name}=support.agents:{name}")
)


@pytest.fixture
def executor(services: Services) -> Service:
    return services.executor("--lease-seconds", "1")


@pytest.fixture
def gateway(services: Services) -> Service:
    return services.start("env_gateway", "--catalogue", "environments/catalogue.json")


@pytest.fixture
def stub(executor: Service) -> Iterator[Stub]:
    with door(executor.address) as stub:
        yield stub


@pytest.fixture
def calls(gateway: Service) -> Iterator[Gateway]:
    with grpc.insecure_channel(gateway.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield Gateway(channel)


def game(kind: str, **config: object) -> task_pb2.Task:
    """Three boxes; after a failure it is tried again at once."""
    made = task(GAME, "t", task_pb2.AgentSpec(kind=kind, config_json=json.dumps(config)))
    made.retry.max_attempts = 2  # A resume that fails costs an attempt: none may.
    made.retry.initial_backoff.FromMilliseconds(1)
    return made


def stats(calls: Gateway) -> tuple[int, int]:
    """Environments opened, and calls made."""
    found = calls.GetStats(env_gateway_pb2.GetStatsRequest(), timeout=10, wait_for_ready=True)
    return found.opened_total, found.calls_total


def journal(stub: Stub, *, follow: bool = False) -> Iterator[message_pb2.Message]:
    request = executor_pb2.WatchSessionRequest(session_id=SESSION, no_follow=not follow)
    for response in stub.WatchSession(request, timeout=30):
        yield from response.messages


def wait_for_results(stub: Stub, count: int) -> None:
    """Until so many observations are journalled."""
    watch = journal(stub, follow=True)
    while count:
        count -= next(watch).category == "observation"


def check_solved(trajectory: trajectory_pb2.Trajectory) -> None:
    """Every box opened once in order, and the answer said, by the second attempt on the other node."""
    *opened, last = trajectory.steps
    arguments = [json.loads(step.action.tool_calls[0].arguments_json)["id"] for step in opened]
    results = [observation.text for step in opened for observation in step.observations]
    assert (arguments, results) == ([17, 23, 31], ["box 23", "box 31", "coin 42"])
    assert last.action.text == "<answer>42</answer>"
    assert (trajectory.reward, trajectory.attempt, trajectory.node_id) == (1.0, 2, "b")


def test_kill_9_of_a_node_costs_no_step(
    services: Services, executor: Service, gateway: Service, stub: Stub, calls: Gateway
) -> None:
    """The other node goes on behind the second box: three calls in all, in one environment."""
    first = services.node("a", executor, gateway, *SOLVERS)
    submit(stub, [game("mindful_solver", hold_after=2)])
    wait_for_results(stub, 2)
    first.kill()
    services.node("b", executor, gateway, *SOLVERS)
    (trajectory,) = trajectories(stub, 1)
    check_solved(trajectory)
    assert stats(calls) == (1, 3)
    told = [(m.category, m.attempt) for m in journal(stub)]
    assert told == [
        ("task", 1),
        *[("action", 1), ("observation", 1)] * 2,
        ("resumed", 2),
        ("action", 2),
        ("observation", 2),
        ("answer", 2),
    ]
    began = trajectory.started_at.ToNanoseconds()
    assert [step.started_at.ToNanoseconds() < began for step in trajectory.steps] == [True, True, False, False]


def test_an_agent_that_is_not_resumable_begins_anew(
    services: Services, executor: Service, gateway: Service, stub: Stub, calls: Gateway
) -> None:
    """In an environment of its own, without the past."""
    first = services.node("a", executor, gateway, *SOLVERS)
    submit(stub, [game("forgetful_solver", hold_after=2)])
    wait_for_results(stub, 2)
    first.kill()
    services.node("b", executor, gateway, *SOLVERS)
    (trajectory,) = trajectories(stub, 1)
    check_solved(trajectory)
    assert stats(calls) == (2, 5)


def test_where_the_environment_is_gone_the_attempt_begins_anew(
    services: Services, executor: Service, gateway: Service, stub: Stub
) -> None:
    """The gateway was killed with the node."""
    first = services.node("a", executor, gateway, *SOLVERS)
    submit(stub, [game("mindful_solver", hold_after=2)])
    wait_for_results(stub, 2)
    first.kill()
    gateway.kill()
    gateway.launch()
    gateway.wait_serving()
    services.node("b", executor, gateway, *SOLVERS)
    (trajectory,) = trajectories(stub, 1)
    check_solved(trajectory)
    with grpc.insecure_channel(gateway.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        assert stats(Gateway(channel)) == (1, 3)
    assert [m.attempt for m in journal(stub) if m.category == "task"] == [1, 2]


def test_a_node_that_is_stopped_hands_its_rollout_over_where_it_stands(
    services: Services, executor: Service, gateway: Service, stub: Stub, calls: Gateway
) -> None:
    """SIGTERM: the environment stays, and nothing is done twice."""
    first = services.node("a", executor, gateway, "--drain-seconds", "0.1", *SOLVERS)
    submit(stub, [game("mindful_solver", hold_after=2)])
    wait_for_results(stub, 2)
    assert first.stop() == 0
    services.node("b", executor, gateway, *SOLVERS)
    (trajectory,) = trajectories(stub, 1)
    check_solved(trajectory)
    assert stats(calls) == (1, 3)


def nothing_more(first: First) -> None:
    """All is told."""


def told_and_not_made(first: First) -> None:
    """The node died before the call left."""
    first.tell_action("two", 23)


def made_and_not_answered(first: First) -> None:
    """The node died before it told the result: the call is known by its id, and not made again."""
    first.make(first.tell_action("two", 23))


@pytest.mark.parametrize("last_deed", [nothing_more, told_and_not_made, made_and_not_answered])
def test_a_step_that_was_cut_off_is_finished_and_not_repeated(
    services: Services,
    executor: Service,
    gateway: Service,
    stub: Stub,
    calls: Gateway,
    last_deed: Callable[[First], None],
) -> None:
    """Wherever between its action and its result the node died."""
    submit(stub, [game("mindful_solver")])
    first = First(executor, calls, "mindful_solver")
    first.open("one", 17)
    last_deed(first)
    first.die()
    services.node("b", executor, gateway, *SOLVERS)
    (trajectory,) = trajectories(stub, 1)
    check_solved(trajectory)
    assert stats(calls) == (1, 3)


def made_and_not_told(first: First) -> None:
    """The node died before it told of the call at all."""
    first.make(message_pb2.ToolCall(call_id="two", name=TOOL, arguments_json='{"id": 23}'))


def scored(first: First) -> None:
    """The node died before it brought the trajectory: nothing can be done in the environment any more."""
    request = env_gateway_pb2.ScoreRequest(
        session_id=SESSION, attempt=1, answer="42", scoring=first.assignment.task.scoring
    )
    first.calls.Score(request, timeout=30)


def closed(first: First) -> None:
    """The node failed in order."""
    first.calls.CloseSession(env_gateway_pb2.CloseSessionRequest(session_id=SESSION, attempt=1), timeout=30)


def told_too_much(first: First) -> None:
    """A journal of more than 2 MiB doesn't travel."""
    for _ in range(3):
        first.recorder.say("message", "agent", text="x" * 1_000_000)


@pytest.mark.parametrize("last_deed", [made_and_not_told, scored, closed, told_too_much])
def test_what_the_journal_does_not_tell_whole_is_not_gone_on_from(
    services: Services,
    executor: Service,
    gateway: Service,
    stub: Stub,
    calls: Gateway,
    last_deed: Callable[[First], None],
) -> None:
    """A clean attempt, in a new environment; and it is the second already."""
    submit(stub, [game("mindful_solver")])
    first = First(executor, calls, "mindful_solver")
    first.open("one", 17)
    last_deed(first)
    made = stats(calls)[1]
    first.die()
    services.node("b", executor, gateway, *SOLVERS)
    (trajectory,) = trajectories(stub, 1)
    check_solved(trajectory)
    assert stats(calls) == (2, made + 3)
