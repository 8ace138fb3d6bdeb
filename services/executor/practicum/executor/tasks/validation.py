"""Refuses tasks that are wrong, naming each field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from google.protobuf.duration_pb2 import Duration

from practicum.common.errors import InvalidArgument
from practicum.executor.tasks.nesting import TOO_DEEP, is_deep_task
from practicum.v1 import task_pb2

TASK_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
MAX_TASKS = 10_000
MAX_ROLLOUTS = 1_024
MAX_INSTRUCTION_BYTES = 1024 * 1024
MAX_TASK_BYTES = 4 * 1024 * 1024
MAX_VIOLATIONS = 20
YEAR_SECONDS = 366 * 24 * 3600
NO_OBJECT = "is not the text of a JSON object"


def check_tasks(tasks: Sequence[task_pb2.Task], *, max_rollouts: int = MAX_ROLLOUTS) -> None:
    """Raises InvalidArgument with every wrong field of every task. A task may have so many rollouts."""
    wrong: dict[str, str] = {}
    if not 1 <= len(tasks) <= MAX_TASKS:
        wrong["tasks"] = f"has {len(tasks)} tasks; give 1 to {MAX_TASKS}"
    for index, task in enumerate(tasks):
        for field, text in faults(task, max_rollouts):
            wrong[f"tasks[{index}].{field}"] = text
        if len(wrong) > MAX_VIOLATIONS:
            break  # The status travels in a header, which has its limit.
    if wrong:
        raise InvalidArgument(wrong)


def check_body(index: int, body: bytes) -> None:
    """Raises InvalidArgument when a serialized task is too large or too deep to travel."""
    if len(body) > MAX_TASK_BYTES:
        detail = f"makes the task {len(body)} bytes; all of it may have {MAX_TASK_BYTES}"
        raise InvalidArgument({f"tasks[{index}].metadata_json": detail})
    if is_deep_task(body):
        raise InvalidArgument({f"tasks[{index}].unknown_fields": TOO_DEEP})


def check_ids(task_ids: Sequence[str]) -> None:
    """Raises InvalidArgument with every id that no task can have."""
    if len(task_ids) > MAX_TASKS:
        raise InvalidArgument({"task_ids": f"has {len(task_ids)} ids; give at most {MAX_TASKS}"})
    wrong = [index for index, task_id in enumerate(task_ids) if not TASK_ID.fullmatch(task_id)]
    if wrong:
        pattern = f"must match {TASK_ID.pattern}"
        raise InvalidArgument({f"task_ids[{index}]": pattern for index in wrong[:MAX_VIOLATIONS]})


def faults(task: task_pb2.Task, max_rollouts: int) -> Iterator[tuple[str, str]]:
    """The fields of a task that are wrong, with what is wrong."""
    if task.id and not TASK_ID.fullmatch(task.id):
        yield "id", f"must match {TASK_ID.pattern}"
    if task.queue and not TASK_ID.fullmatch(task.queue):
        yield "queue", f"must match {TASK_ID.pattern}"
    if not task.instruction:
        yield "instruction", "is empty; say what the agent is asked to do"
    elif len(task.instruction) > MAX_INSTRUCTION_BYTES // 4 and len(task.instruction.encode()) > MAX_INSTRUCTION_BYTES:
        yield "instruction", f"is longer than {MAX_INSTRUCTION_BYTES} bytes"
    if not task.agent.kind:
        yield "agent.kind", "is empty; name an agent that a node runs, such as tool_agent"
    if not 0 <= task.rollouts <= max_rollouts:
        yield "rollouts", f"is {task.rollouts}; give 1 to {max_rollouts}, or 0 for 1"
    if task.HasField("environment") and not task.environment.name:
        yield "environment.name", "is empty; name an environment of the catalogue"
    if task.HasField("scoring") and not task.HasField("environment"):
        yield "scoring", "needs an environment: its gateway scores the answer"
    if task.HasField("straggler_cutoff") and not 1 <= task.straggler_cutoff.after_usable < (task.rollouts or 1):
        yield "straggler_cutoff.after_usable", "must be at least 1 and less than rollouts"
    if task.HasField("limits") or task.HasField("retry"):
        yield from limit_faults(task)
    yield from json_faults(task)


def limit_faults(task: task_pb2.Task) -> Iterator[tuple[str, str]]:
    """Limits and the retry policy: nothing is negative, and no time is longer than a year."""
    limits = task.limits
    for name in ("max_steps", "max_tokens_per_action", "max_total_tokens"):
        if getattr(limits, name) < 0:
            yield f"limits.{name}", "is negative"
    for name in ("rollout_deadline", "step_deadline", "schedule_deadline"):
        if not is_time(getattr(limits, name)):
            yield f"limits.{name}", "must be between 0 and a year"
    if task.retry.max_attempts < 0:
        yield "retry.max_attempts", "is negative"
    if not is_time(task.retry.initial_backoff):
        yield "retry.initial_backoff", "must be between 0 and a year"


def json_faults(task: task_pb2.Task) -> Iterator[tuple[str, str]]:
    """Settings that have to be the text of a JSON object."""
    if (text := task.agent.config_json) and not is_json_object(text):
        yield "agent.config_json", NO_OBJECT
    if task.HasField("environment") and (text := task.environment.parameters_json) and not is_json_object(text):
        yield "environment.parameters_json", NO_OBJECT


def is_time(duration: Duration) -> bool:
    """Whether a Duration is one that may be waited for."""
    return 0 <= duration.seconds <= YEAR_SECONDS and 0 <= duration.nanos < 10**9


def is_json_object(text: str) -> bool:
    """Whether a text is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
