"""The quickstart's recipe: a cold start on an impatient teacher's trajectories, then practice."""

from __future__ import annotations

from pathlib import Path

from practicum.v1 import trainer_pb2

LESSONS = 500
BEFORE, AFTER_SFT, AFTER_RL, WITHOUT_TOOLS = "before", "after-sft", "after-rl", "tools-hidden"
SAMPLED, GREEDY = 1.0, 0.0


def recipe(folder: Path, *, seed: int, steps: int, learning_rate: float) -> trainer_pb2.RunSpec:
    """What the trainer is asked to do. Files are below `folder`."""
    heldout, practice = str(folder / "tasks" / "heldout.jsonl"), str(folder / "tasks" / "rl.jsonl")

    def measure(name: str, *temperatures: float, **options: object) -> trainer_pb2.Stage:
        stage = trainer_pb2.EvaluateStage(tasks_path=heldout, temperatures=temperatures, **options)  # type: ignore[arg-type]
        return trainer_pb2.Stage(name=name, evaluate=stage)

    sft = trainer_pb2.SftStage(
        labels={"purpose": "sft"}, trajectories=LESSONS, steps=120, batch_size=32, learning_rate=2e-3
    )
    grpo = trainer_pb2.GrpoStage(
        tasks_path=practice,
        steps=steps,
        groups_per_step=8,
        group_size=8,
        learning_rate=learning_rate,
        final_learning_rate_ratio=0.5,
        max_staleness=2,
        max_concurrent_groups=24,
        checkpoint_every=10,
    )
    return trainer_pb2.RunSpec(
        run_id="quickstart",
        model_path=str(folder / "model"),
        output_path=str(folder / "run"),
        seed=seed,
        backend=trainer_pb2.TRAINER_BACKEND_AREAL,
        stages=[
            measure(BEFORE, GREEDY),
            trainer_pb2.Stage(name="sft", sft=sft),
            # Nothing to learn from without some success, nothing left to learn with too much.
            measure(AFTER_SFT, SAMPLED, GREEDY, fail_below=0.05, fail_above=0.45),
            trainer_pb2.Stage(name="rl", grpo=grpo),
            measure(AFTER_RL, SAMPLED, GREEDY),
            measure(WITHOUT_TOOLS, SAMPLED, hide_tools=True),
        ],
    )
