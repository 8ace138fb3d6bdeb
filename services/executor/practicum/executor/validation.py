"""Refuses tasks that are wrong, naming each field."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from practicum.common.errors import InvalidArgument
from practicum.v1 import task_pb2

TASK_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
MAX_TASKS = 10_000
MAX_ROLLOUTS = 1_024
MAX_INSTRUCTION_BYTES = 1024 * 1024


def check_tasks(tasks: Sequence[task_pb2.Task], *, max_rollouts: int = MAX_ROLLOUTS) -> None:
    """Raises InvalidArgument with every wrong field of every task. A task may have so many rollouts."""
    wrong: dict[str, str] = {}
    if not 1 <= len(tasks) <= MAX_TASKS:
        wrong["tasks"] = f"has {len(tasks)} tasks; give 1 to {MAX_TASKS}"
    for index, task in enumerate(tasks):
        wrong |= {f"tasks[{index}].{field}": text for field, text in faults(task, max_rollouts)}
    if wrong:
        raise InvalidArgument(wrong)


def check_ids(task_ids: Sequence[str]) -> None:
    """Raises InvalidArgument with every id that no task can have."""
    wrong = {
        f"task_ids[{i}]": f"must match {TASK_ID.pattern}" for i, t in enumerate(task_ids) if not TASK_ID.fullmatch(t)
    }
    if wrong:
        raise InvalidArgument(wrong)


def faults(task: task_pb2.Task, max_rollouts: int) -> list[tuple[str, str]]:
    """The fields of a task that are wrong, with what is wrong."""
    found = []
    if task.id and not TASK_ID.fullmatch(task.id):
        found.append(("id", f"must match {TASK_ID.pattern}"))
    if not task.instruction:
        found.append(("instruction", "is empty; say what the agent is asked to do"))
    elif len(task.instruction.encode()) > MAX_INSTRUCTION_BYTES:
        found.append(("instruction", f"is longer than {MAX_INSTRUCTION_BYTES} bytes"))
    if not task.agent.kind:
        found.append(("agent.kind", "is empty; name an agent that a node runs, such as tool_agent"))
    if not 0 <= task.rollouts <= max_rollouts:
        found.append(("rollouts", f"is {task.rollouts}; give 1 to {max_rollouts}, or 0 for 1"))
    if task.HasField("environment") and not task.environment.name:
        found.append(("environment.name", "is empty; name an environment of the catalogue"))
    if task.HasField("scoring") and not task.HasField("environment"):
        found.append(("scoring", "needs an environment: its gateway scores the answer"))
    if task.limits.max_steps < 0:
        found.append(("limits.max_steps", "is negative"))
    if task.retry.max_attempts < 0:
        found.append(("retry.max_attempts", "is negative"))
    for field, text in (
        ("agent.config_json", task.agent.config_json),
        ("environment.parameters_json", task.environment.parameters_json),
    ):
        if text and not is_json_object(text):
            found.append((field, "is not the text of a JSON object"))
    return found


def is_json_object(text: str) -> bool:
    """Whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
