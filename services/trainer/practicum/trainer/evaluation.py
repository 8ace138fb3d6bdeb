"""Measures success on held-out tasks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from practicum.trainer.context import RunContext
from practicum.trainer.groups import SCORED
from practicum.trainer.outcome import RunFailed
from practicum.trainer.tasks import read_tasks
from practicum.v1 import trainer_pb2, trajectory_pb2


def evaluate(context: RunContext, stage: trainer_pb2.Stage) -> None:
    """One measurement for each temperature; the bounds hold for the first."""
    tasks = read_tasks(Path(stage.evaluate.tasks_path))
    maker = context.maker(stage.name)
    context.reporter.begin(stage.name, len(stage.evaluate.temperatures))
    for index, temperature in enumerate(stage.evaluate.temperatures):
        hidden = stage.evaluate.hide_tools
        made = [
            maker.make(task, f"{index}.{number}", temperature=temperature, hide_tools=hidden)
            for number, task in enumerate(tasks)
        ]
        groups = context.loop.wait(context.rollouts.run_all(made))
        result = measured(trajectory for group in groups for trajectory in group)
        result.temperature = temperature
        result.policy_version = context.publisher.published
        result.tools_hidden = hidden
        context.reporter.evaluation(result)
        if index == 0:
            check_bounds(stage, result)


def measured(trajectories: Iterable[trajectory_pb2.Trajectory]) -> trainer_pb2.EvaluationResult:
    """Counts successes among what was scored; what was not is counted apart."""
    result = trainer_pb2.EvaluationResult()
    for trajectory in trajectories:
        if trajectory.outcome in SCORED:
            result.tasks += 1
            result.successes += trajectory.success
        else:
            result.errors += 1
    return result


def check_bounds(stage: trainer_pb2.Stage, result: trainer_pb2.EvaluationResult) -> None:
    """Raises RunFailed when the share of successes is outside the stage's bounds."""
    if not result.tasks:
        raise RunFailed(f"stage {stage.name}: none of {result.errors} tasks was scored, all ended with errors")
    share = result.successes / result.tasks
    bounds = stage.evaluate
    told = f"stage {stage.name}: {result.successes} of {result.tasks} tasks succeeded ({share:.1%})"
    if bounds.HasField("fail_below") and share < bounds.fail_below:
        raise RunFailed(f"{told}, which is below the bound of {bounds.fail_below:.1%}")
    if bounds.HasField("fail_above") and share > bounds.fail_above:
        raise RunFailed(f"{told}, which is above the bound of {bounds.fail_above:.1%}")
