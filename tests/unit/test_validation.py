"""Wrong tasks are refused with every wrong field named."""

from __future__ import annotations

import pytest

from practicum.common.errors import InvalidArgument
from practicum.executor.tasks.validation import check_tasks
from practicum.v1 import task_pb2


def good(**changes: object) -> task_pb2.Task:
    task = task_pb2.Task(id="t-1", instruction="open box 17", agent=task_pb2.AgentSpec(kind="tool_agent"))
    for name, value in changes.items():
        setattr(task, name, value)
    return task


def test_a_good_task_passes() -> None:
    """An id may be left to the executor."""
    check_tasks([good(), good(id="")])


def test_every_wrong_field_of_every_task_is_named() -> None:
    """One answer tells all that has to be mended."""
    bad = good(id="no/slash", instruction="", rollouts=-1)
    bad.agent.config_json = "[1]"
    bad.environment.parameters_json = "{"
    bad.limits.max_steps = -1
    with pytest.raises(InvalidArgument) as caught:
        check_tasks([good(), bad])
    assert set(caught.value.fields) == {
        f"tasks[1].{field}"
        for field in (
            "id",
            "instruction",
            "rollouts",
            "agent.config_json",
            "environment.name",
            "environment.parameters_json",
            "limits.max_steps",
        )
    }


def test_no_tasks_at_all_is_an_error() -> None:
    """An empty submit is a mistake of the caller's."""
    with pytest.raises(InvalidArgument) as caught:
        check_tasks([])
    assert set(caught.value.fields) == {"tasks"}
