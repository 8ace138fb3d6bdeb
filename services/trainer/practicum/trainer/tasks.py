"""Task files, and the tasks that a run's stages make of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from practicum.v1 import task_pb2

RUN_LABEL, STAGE_LABEL = "run", "stage"


class TaskFileError(ValueError):
    """The file is not what it should be; the text says which line and why."""


def read_tasks(path: Path) -> list[task_pb2.Task]:
    """The tasks of a file of JSON Lines."""
    tasks = []
    # Not by `splitlines`: JSON's texts may hold what Unicode takes for a line's end.
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if line.strip():
            tasks.append(parse(line, f"{path}:{number}"))
    if not tasks:
        raise TaskFileError(f"{path} holds no tasks")
    return tasks


def parse(line: bytes, place: str) -> task_pb2.Task:
    """One task. Fields of a later version of the protocol are skipped."""
    try:
        task = json_format.Parse(line.decode(), task_pb2.Task(), ignore_unknown_fields=True)
        agent_settings(task)
    except (json_format.ParseError, ValueError) as error:
        raise TaskFileError(f"{place} is not a practicum.v1.Task: {error}") from error
    return task


def agent_settings(task: task_pb2.Task) -> dict[str, Any]:
    """The settings of the task's agent. Raises ValueError when they are no JSON object."""
    try:
        settings = json.loads(task.agent.config_json or "{}")
    except json.JSONDecodeError as error:
        raise ValueError(f"agent.config_json is not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise ValueError("agent.config_json is not a JSON object")
    return settings


@dataclass(frozen=True, slots=True)
class TaskMaker:
    """Makes a file's tasks a stage's own. `incarnation`: how often the run was started, so that what an earlier
    start left behind is never taken for a task of this one."""

    run_id: str
    stage: str
    incarnation: int

    def make(
        self,
        task: task_pb2.Task,
        name: str,
        *,
        temperature: float,
        rollouts: int = 1,
        hide_tools: bool = False,
    ) -> task_pb2.Task:
        """The task with its own id, labels, temperature and number of rollouts."""
        made = task_pb2.Task()
        made.CopyFrom(task)
        made.id = f"{self.run_id}.{self.stage}.{self.incarnation}.{name}"
        made.rollouts = rollouts
        made.labels[RUN_LABEL] = self.run_id
        made.labels[STAGE_LABEL] = self.stage
        made.agent.config_json = json.dumps(agent_settings(task) | {"temperature": temperature})
        if hide_tools and made.HasField("environment"):
            made.environment.hide_tools = True
        return made
