"""The quickstart's recipe: a cold start on an impatient teacher's trajectories, then practice."""

from __future__ import annotations

from pathlib import Path

from practicum.v1 import trainer_pb2

LESSONS = 500
BEFORE, AFTER_SFT, AFTER_RL, WITHOUT_TOOLS = "before", "after-sft", "after-rl", "tools-hidden"
SAMPLED, GREEDY = 1.0, 0.0


def recipe(folder: Path, *, seed: int, steps: int, learning_rate: float) -> trainer_pb2.RunSpec:
    """The whole: cold start, practice, and what came of both. Files are below `folder`."""
    sft = trainer_pb2.SftStage(
        labels={"purpose": "sft"}, trajectories=LESSONS, steps=120, batch_size=32, learning_rate=2e-3
    )
    return trainer_pb2.RunSpec(
        run_id="quickstart",
        model_path=str(folder / "model"),
        output_path=str(folder / "run"),
        seed=seed,
        backend=trainer_pb2.TRAINER_BACKEND_AREAL,
        stages=[
            measure(folder, BEFORE, GREEDY),
            trainer_pb2.Stage(name="sft", sft=sft),
            # Nothing to learn from without some success, nothing left to learn with too much.
            measure(folder, AFTER_SFT, SAMPLED, GREEDY, fail_below=0.05, fail_above=0.45),
            practice(folder, steps=steps, learning_rate=learning_rate),
            measure(folder, AFTER_RL, SAMPLED, GREEDY),
            measure(folder, WITHOUT_TOOLS, SAMPLED, hide_tools=True),
        ],
    )


def more(folder: Path, *, seed: int, steps: int, learning_rate: float) -> trainer_pb2.RunSpec:
    """Further practice, from the model that the last run in the folder left; one that was cut off goes on."""
    number, model = 1, folder / "run" / "model"
    while (folder / f"more-{number}" / "model").exists():
        number, model = number + 1, folder / f"more-{number}" / "model"
    return trainer_pb2.RunSpec(
        run_id=f"more-{number}",
        model_path=str(model),
        output_path=str(folder / f"more-{number}"),
        seed=seed + number,
        backend=trainer_pb2.TRAINER_BACKEND_AREAL,
        stages=[
            practice(folder, steps=steps, learning_rate=learning_rate),
            measure(folder, AFTER_RL, SAMPLED, GREEDY),
        ],
    )


def measure(folder: Path, name: str, *temperatures: float, **options: object) -> trainer_pb2.Stage:
    """A measurement on held-out tasks."""
    path = str(folder / "tasks" / "heldout.jsonl")
    stage = trainer_pb2.EvaluateStage(tasks_path=path, temperatures=temperatures, **options)  # type: ignore[arg-type]
    return trainer_pb2.Stage(name=name, evaluate=stage)


def practice(folder: Path, *, steps: int, learning_rate: float) -> trainer_pb2.Stage:
    """Asynchronous GRPO, the weights updated every step."""
    grpo = trainer_pb2.GrpoStage(
        tasks_path=str(folder / "tasks" / "rl.jsonl"),
        steps=steps,
        groups_per_step=8,
        group_size=8,
        learning_rate=learning_rate,
        final_learning_rate_ratio=0.5,
        max_staleness=2,
        max_concurrent_groups=24,
        checkpoint_every=10,
    )
    return trainer_pb2.Stage(name="rl", grpo=grpo)
