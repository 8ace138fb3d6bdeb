"""Refuses specs that are wrong, naming each field."""

from __future__ import annotations

import re
from pathlib import Path

from practicum.common.errors import InvalidArgument
from practicum.trainer.tasks import TaskFileError, read_tasks
from practicum.v1 import trainer_pb2

# Both become names of folders.
NAME = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,64}")
STAGE_NAME = re.compile(r"(?!\.+$)[A-Za-z0-9._-]{1,32}")

Fault = tuple[str, str]


def check_spec(spec: trainer_pb2.RunSpec) -> None:
    """Raises InvalidArgument with every wrong field. Reads the files that the spec names: call it in a thread."""
    faults = [*run_faults(spec)]
    names = [stage.name for stage in spec.stages]
    for index, stage in enumerate(spec.stages):
        if names.count(stage.name) > 1:
            faults.append((f"stages[{index}].name", f"{stage.name!r} names another stage too"))
        faults += [(f"stages[{index}].{field}", wrong) for field, wrong in stage_faults(stage)]
    if faults:
        raise InvalidArgument({f"spec.{field}": wrong for field, wrong in faults})


def run_faults(spec: trainer_pb2.RunSpec) -> list[Fault]:
    """What is wrong with the run itself."""
    found = model_faults(spec.model_path)
    if not NAME.fullmatch(spec.run_id):
        found.append(("run_id", "give 1 to 64 of A-Z, a-z, 0-9, dot, dash and underscore, not dots alone"))
    if not spec.output_path:
        found.append(("output_path", "is empty; give a folder for checkpoints and weights"))
    elif Path(spec.output_path).exists() and not Path(spec.output_path).is_dir():
        found.append(("output_path", f"{spec.output_path} is not a folder"))
    if not spec.stages:
        found.append(("stages", "is empty; give at least one"))
    if spec.backend not in trainer_pb2.TrainerBackend.values():
        found.append(("backend", "is unknown"))
    return found


def model_faults(model_path: str) -> list[Fault]:
    """What is wrong with the model to begin from."""
    if not model_path:
        return [("model_path", "is empty; give a folder with a model in Hugging Face's layout")]
    folder = Path(model_path)
    if not folder.is_dir():
        return [("model_path", f"{model_path} is not a folder; give one with a model in Hugging Face's layout")]
    wanted = ("config.json", "tokenizer.json", "*.safetensors")
    missing = [pattern for pattern in wanted if not any(folder.glob(pattern))]
    return [("model_path", f"{model_path} holds no {' and no '.join(missing)}")] if missing else []


def stage_faults(stage: trainer_pb2.Stage) -> list[Fault]:
    """What is wrong with a stage."""
    found = (
        []
        if STAGE_NAME.fullmatch(stage.name)
        else [("name", "give 1 to 32 of A-Z, a-z, 0-9, dot, dash and underscore, not dots alone")]
    )
    match stage.WhichOneof("kind"):
        case "evaluate":
            faults = evaluate_faults(stage.evaluate)
        case "sft":
            faults = sft_faults(stage.sft)
        case "grpo":
            faults = grpo_faults(stage.grpo)
        case _:
            return [*found, ("kind", "is not set; give evaluate, sft or grpo")]
    return found + [(f"{stage.WhichOneof('kind')}.{field}", wrong) for field, wrong in faults]


def evaluate_faults(stage: trainer_pb2.EvaluateStage) -> list[Fault]:
    """What is wrong with a measurement."""
    found = tasks_faults(stage.tasks_path)
    if not stage.temperatures:
        found.append(("temperatures", "is empty; give at least one, 0 for greedy"))
    elif not all(temperature >= 0 for temperature in stage.temperatures):
        found.append(("temperatures", "has one that is not 0 or more"))
    bounds = [field for field in ("fail_below", "fail_above") if stage.HasField(field)]
    found += [(field, "has to be between 0 and 1") for field in bounds if not 0 <= getattr(stage, field) <= 1]
    return found


def sft_faults(stage: trainer_pb2.SftStage) -> list[Fault]:
    """What is wrong with supervised fine-tuning."""
    found = positive(stage, "trajectories", "steps", "batch_size")
    if not stage.labels:
        found.append(("labels", "is empty; say which trajectories to train on"))
    if not stage.learning_rate > 0:
        found.append(("learning_rate", "has to be above 0"))
    return found


def grpo_faults(stage: trainer_pb2.GrpoStage) -> list[Fault]:
    """What is wrong with GRPO."""
    found = tasks_faults(stage.tasks_path) + positive(stage, "steps", "groups_per_step")
    if stage.group_size < 2:
        found.append(("group_size", f"is {stage.group_size}; a group of fewer than 2 has no advantages"))
    if not stage.learning_rate >= 0:
        found.append(("learning_rate", "has to be 0 or more"))
    for field in ("max_staleness", "max_concurrent_groups", "checkpoint_every"):
        if getattr(stage, field) < 0:
            found.append((field, "is negative"))
    for field in ("clip", "importance_weight_cap"):
        if stage.HasField(field) and not getattr(stage, field) > 0:  # type: ignore[arg-type]
            found.append((field, "has to be above 0"))
    if stage.HasField("beta2") and not 0 <= stage.beta2 < 1:
        found.append(("beta2", "has to be at least 0 and below 1"))
    if stage.HasField("final_learning_rate_ratio") and not 0 <= stage.final_learning_rate_ratio <= 1:
        found.append(("final_learning_rate_ratio", "has to be between 0 and 1"))
    return found


def positive(stage: trainer_pb2.SftStage | trainer_pb2.GrpoStage, *fields: str) -> list[Fault]:
    """The fields that are not above 0."""
    return [(field, f"is {getattr(stage, field)}; give at least 1") for field in fields if getattr(stage, field) < 1]


def tasks_faults(path: str) -> list[Fault]:
    """What is wrong with a file of tasks."""
    if not path:
        return [("tasks_path", "is empty; give a file of tasks")]
    try:
        read_tasks(Path(path))
    except OSError as error:
        return [("tasks_path", f"can't read {path}: {error.strerror}")]
    except TaskFileError as error:
        return [("tasks_path", str(error))]
    return []
