"""Wrong specs are refused with every wrong field named; settings get the protocol's defaults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from practicum.common.errors import InvalidArgument
from practicum.trainer.settings import GrpoSettings, linear_decay, warm_up_and_decay
from practicum.trainer.tasks import TaskFileError, TaskMaker, read_tasks
from practicum.trainer.validation import check_spec
from practicum.v1 import task_pb2, trainer_pb2

TASK = '{"instruction": "open box 17", "agent": {"kind": "tool_agent", "configJson": "{\\"top_p\\": 0.9}"}}\n'


@pytest.fixture
def spec(tmp_path: Path) -> trainer_pb2.RunSpec:
    """A good spec of every kind of stage."""
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).touch()
    (tmp_path / "tasks.jsonl").write_text(TASK)
    tasks = str(tmp_path / "tasks.jsonl")
    return trainer_pb2.RunSpec(
        run_id="run-1",
        model_path=str(tmp_path),
        output_path=str(tmp_path / "out"),
        stages=[
            trainer_pb2.Stage(name="before", evaluate=trainer_pb2.EvaluateStage(tasks_path=tasks, temperatures=[0, 1])),
            trainer_pb2.Stage(
                name="sft",
                sft=trainer_pb2.SftStage(labels={"a": "b"}, trajectories=1, steps=1, batch_size=1, learning_rate=1e-3),
            ),
            trainer_pb2.Stage(
                name="rl", grpo=trainer_pb2.GrpoStage(tasks_path=tasks, steps=1, groups_per_step=1, group_size=2)
            ),
        ],
    )


def wrong(spec: trainer_pb2.RunSpec) -> dict[str, str]:
    with pytest.raises(InvalidArgument) as caught:
        check_spec(spec)
    return caught.value.fields


def test_a_good_spec_passes(spec: trainer_pb2.RunSpec) -> None:
    """A learning rate of 0 is a control, and allowed for GRPO."""
    check_spec(spec)


def test_an_empty_spec_names_all_that_is_required() -> None:
    """One answer tells all that has to be mended."""
    assert wrong(trainer_pb2.RunSpec()).keys() == {
        "spec.run_id",
        "spec.model_path",
        "spec.output_path",
        "spec.stages",
    }


def test_every_wrong_field_of_every_stage_is_named(spec: trainer_pb2.RunSpec) -> None:
    """With the stage's index and kind."""
    spec.stages[0].evaluate.CopyFrom(trainer_pb2.EvaluateStage(tasks_path="/no/such", fail_below=2))
    spec.stages[1].sft.CopyFrom(trainer_pb2.SftStage(learning_rate=float("nan")))
    spec.stages[2].grpo.CopyFrom(
        trainer_pb2.GrpoStage(
            learning_rate=-1, max_staleness=-1, clip=0, beta2=1, final_learning_rate_ratio=2, group_size=1
        )
    )
    spec.stages[2].name = "sft"
    spec.stages.add(name="../evil")
    assert wrong(spec).keys() == {
        "spec.stages[0].evaluate.tasks_path",
        "spec.stages[0].evaluate.temperatures",
        "spec.stages[0].evaluate.fail_below",
        *(f"spec.stages[1].sft.{field}" for field in ("trajectories", "steps", "batch_size", "labels")),
        "spec.stages[1].sft.learning_rate",
        "spec.stages[1].name",
        "spec.stages[2].name",
        *(f"spec.stages[2].grpo.{field}" for field in ("tasks_path", "steps", "groups_per_step", "group_size")),
        *(f"spec.stages[2].grpo.{field}" for field in ("learning_rate", "max_staleness", "clip", "beta2")),
        "spec.stages[2].grpo.final_learning_rate_ratio",
        "spec.stages[3].name",
        "spec.stages[3].kind",
    }


def test_a_missing_model_is_told_by_name(spec: trainer_pb2.RunSpec, tmp_path: Path) -> None:
    """No folder, or one without a model."""
    spec.model_path = "/no/such/model"
    assert wrong(spec) == {
        "spec.model_path": "/no/such/model is not a folder; give one with a model in Hugging Face's layout"
    }
    (tmp_path / "empty").mkdir()
    spec.model_path = str(tmp_path / "empty")
    assert "no config.json and no tokenizer.json and no *.safetensors" in wrong(spec)["spec.model_path"]


@pytest.mark.parametrize("run_id", ["", "..", "a/b", "x" * 65])
def test_a_run_id_is_a_safe_name_of_a_folder(spec: trainer_pb2.RunSpec, run_id: str) -> None:
    """It becomes one."""
    spec.run_id = run_id
    assert wrong(spec).keys() == {"spec.run_id"}


def test_a_wrong_line_of_a_task_file_is_named(tmp_path: Path) -> None:
    """File, line and reason."""
    path = tmp_path / "tasks.jsonl"
    path.write_text(TASK + "{\n")
    with pytest.raises(TaskFileError, match=r"tasks\.jsonl:2 is not a practicum\.v1\.Task"):
        read_tasks(path)
    for settings in ("{", "[]"):
        path.write_text(TASK + "\n" + json.dumps({"agent": {"configJson": settings}}))
        with pytest.raises(TaskFileError, match=r"tasks\.jsonl:3 .*agent\.config_json is not "):
            read_tasks(path)
    path.write_bytes(TASK.encode() + b'{"instruction": "\xff"}')
    with pytest.raises(TaskFileError, match=r"tasks\.jsonl:2 is not .*utf-8"):
        read_tasks(path)
    path.write_text("\n")
    with pytest.raises(TaskFileError, match="holds no tasks"):
        read_tasks(path)


def test_a_refused_run_tells_the_line(spec: trainer_pb2.RunSpec, tmp_path: Path) -> None:
    """Within the field that names the file."""
    (tmp_path / "tasks.jsonl").write_text(TASK + '{"instruction": 7}\n')
    for field in ("spec.stages[0].evaluate.tasks_path", "spec.stages[2].grpo.tasks_path"):
        assert f"{tmp_path}/tasks.jsonl:2 is not a practicum.v1.Task: " in wrong(spec)[field]


def test_a_text_of_a_task_may_hold_any_character(tmp_path: Path) -> None:
    """Also those that Unicode takes for the end of a line; Windows' line ends are as good as others."""
    path = tmp_path / "tasks.jsonl"
    path.write_bytes('{"instruction": "one\u2028two\x85"}\r\n{"instruction": "three"}'.encode())
    assert [task.instruction for task in read_tasks(path)] == ["one\u2028two\x85", "three"]


def test_a_stage_makes_a_files_tasks_its_own() -> None:
    """Own id and labels for each start of the run; the task's own settings stay."""
    task = task_pb2.Task(id="x", instruction="i", agent=task_pb2.AgentSpec(kind="k", config_json='{"top_p": 0.9}'))
    task.environment.name = "boxes"
    made = TaskMaker("run", "rl", 3).make(task, "7", temperature=1.0, rollouts=8, hide_tools=True)
    assert (made.id, made.rollouts, dict(made.labels)) == ("run.rl.3.7", 8, {"run": "run", "stage": "rl"})
    assert made.agent.config_json == '{"top_p": 0.9, "temperature": 1.0}'
    assert made.environment.hide_tools and not task.environment.hide_tools


def test_settings_have_the_protocols_defaults_and_keep_a_given_zero() -> None:
    """0 is a value of fields that are optional."""
    settings = GrpoSettings.of(trainer_pb2.GrpoStage(groups_per_step=8, final_learning_rate_ratio=0))
    assert (settings.final_learning_rate_ratio, settings.clip, settings.beta2) == (0.0, 0.2, 0.99)
    assert (settings.max_concurrent_groups, settings.checkpoint_every, settings.probe) == (24, 10, True)


def test_learning_rates_follow_their_schedules() -> None:
    """Golden: ten steps up, level, down over the last 40% to no less than a tenth; or straight to a ratio."""
    shape = [round(warm_up_and_decay(step, steps=120), 3) for step in (0, 9, 71, 72, 96, 115, 119)]
    assert shape == [0.1, 1.0, 1.0, 1.0, 0.5, 0.104, 0.1]
    assert [linear_decay(step, steps=80, final_ratio=0.5) for step in (0, 40, 80, 90)] == [1.0, 0.75, 0.5, 0.5]
