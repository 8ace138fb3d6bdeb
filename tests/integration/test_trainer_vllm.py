"""The whole loop with nothing but real parts: vLLM, proxy, gateway, node, executor, trainer with AReaL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import json_format
from support.boxes import boxes_tasks, door, submit
from support.services import Service, Services
from support.training import Stub, ended, evaluation, practice, run_spec, start, steps_of, trainer_door, tuning
from support.vllm_engine import VllmEngine

from practicum.v1 import executor_pb2, task_pb2, trainer_pb2, trajectory_pb2

pytestmark = [pytest.mark.vllm, pytest.mark.areal, pytest.mark.timeout(900)]
TEACHER = "boxes_teacher=practicum.environments.boxes.agents:teacher"


@pytest.fixture
def executor(services: Services) -> Service:
    return services.executor()


@pytest.fixture
def stub(services: Services, executor: Service, engine: VllmEngine, player: Path, weights_root: Path) -> Iterator[Stub]:
    """A trainer among all that it needs."""
    gateway = services.start("env_gateway", "--catalogue", "environments/catalogue.json")
    flags = ("--engine", engine.address, "--model", str(player), "--weights-root", str(weights_root))
    proxy = services.start("inference_proxy", *flags)
    services.node("node", executor, gateway, "--inference", proxy.address, "--slots", "32", "--agent", TEACHER)
    state = str(services.folder / "trainer")
    trainer = services.start("trainer", "--executor", executor.address, "--inference", proxy.address, "--state", state)
    with trainer_door(trainer.address) as stub:
        yield stub


def task_lines(path: Path, tasks: list[task_pb2.Task]) -> str:
    """A file of these tasks."""
    path.write_text("\n".join(json_format.MessageToJson(task, indent=None) for task in tasks))
    return str(path)


def test_a_model_is_tuned_and_practises_with_real_parts_only(
    stub: Stub, executor: Service, player: Path, weights_root: Path, tmp_path: Path
) -> None:
    """Engine and trainer agree on every version and on packed rows; trajectories tell the versions that made them."""
    lessons = boxes_tasks(32, "boxes_teacher", prefix="lesson", give_up=0.3, seed=1)
    for task in lessons:
        task.labels["lesson"] = "yes"
    with door(executor.address) as calls:
        submit(calls, lessons)
    tasks = task_lines(tmp_path / "tasks.jsonl", boxes_tasks(8, "tool_agent"))
    stages = [
        tuning(trajectories=32, steps=20, batch_size=16, learning_rate=1e-3),
        practice(tasks, steps=4, learning_rate=1e-4),
        evaluation(tasks, "after", temperatures=[0.0, 1.0]),
    ]
    start(stub, run_spec(weights_root, player, *stages))
    run, events = ended(stub, timeout=600)
    assert (run.state, run.detail) == (trainer_pb2.RUN_STATE_SUCCEEDED, "")
    tuned, steps = steps_of(events, "sft"), steps_of(events)
    assert tuned[-1].loss < tuned[0].loss and len(steps) == 4
    assert all(step.probe_kl < 1e-3 and len(step.staleness_tokens) <= 3 for step in steps)
    assert abs(steps[0].metrics["ppo_actor/update/behave_approx_kl/avg"]) < 1e-3
    measured = [event.evaluation for event in events if event.HasField("evaluation")]
    assert [(result.temperature, result.tasks, result.errors) for result in measured] == [(0.0, 8, 0), (1.0, 8, 0)]
    practised = stored(executor, run="run", stage="rl")
    assert {trajectory.max_policy_version for trajectory in practised} <= set(range(2, run.policy_version + 1))
    assert all(json.loads(trajectory.agent.config_json)["temperature"] == 1.0 for trajectory in practised)


def stored(executor: Service, **labels: str) -> list[trajectory_pb2.Trajectory]:
    """Finished trajectories with these labels."""
    wanted = executor_pb2.TrajectoryFilter(labels=labels, outcomes=[trajectory_pb2.OUTCOME_FINISHED])
    with door(executor.address) as calls:
        answers = calls.QueryTrajectories(executor_pb2.QueryTrajectoriesRequest(filter=wanted), timeout=60)
        return [event.trajectory for answer in answers for event in answer.events]
