"""Lists tasks, a page at a time: so many tasks at most, and so many bytes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator
from functools import partial

from practicum.common.errors import InvalidArgument
from practicum.executor.core import Executor
from practicum.executor.observing.views import ENDED, task_status
from practicum.executor.store.labels import matches
from practicum.executor.store.stored import LAST_NUMBER, StoredTask
from practicum.v1 import executor_pb2

MAX_PAGE_SIZE = 1_000
DEFAULT_PAGE_SIZE = 100
# Of a page with several tasks. gRPC's clients take messages of 4 MB, unless they are told otherwise.
MAX_PAGE_BYTES = 2 * 1024 * 1024
OPEN_STATES = {executor_pb2.ROLLOUT_STATE_QUEUED, executor_pb2.ROLLOUT_STATE_RUNNING}

States = Collection[executor_pb2.RolloutState.ValueType]


async def list_tasks(executor: Executor, request: executor_pb2.ListTasksRequest) -> executor_pb2.ListTasksResponse:
    """A page, newest first. Raises InvalidArgument."""
    before, size = page_of(request)
    states, page, more, step = frozenset(request.states), Page(size), False, size + 1
    read = partial(executor.store.tasks_before, states=ended_states(states))
    while not more and (rows := await asyncio.to_thread(read, before, step)):
        more = page.fill(found_in(executor, rows, request, states))
        before, step = rows[-1].number, min(2 * step, MAX_PAGE_SIZE)  # Where few are wanted, ever more are read.
    return executor_pb2.ListTasksResponse(tasks=page.tasks, next_page_token=str(page.last) if more else "")


class Page:
    """The tasks of an answer."""

    def __init__(self, size: int) -> None:
        self.tasks: list[executor_pb2.TaskStatus] = []
        self.last = 0
        """The number of the last one."""
        self._size = size
        self._left = MAX_PAGE_BYTES

    def fill(self, found: Iterable[tuple[int, executor_pb2.TaskStatus]]) -> bool:
        """Adds tasks, with their numbers. Returns whether one had no room; the first always has."""
        for number, status in found:
            size = status.ByteSize()
            if self.tasks and (len(self.tasks) == self._size or size > self._left):
                return True
            self.tasks.append(status)
            self.last = number
            self._left -= size
        return False


def found_in(
    executor: Executor, rows: Iterable[StoredTask], request: executor_pb2.ListTasksRequest, states: States
) -> Iterator[tuple[int, executor_pb2.TaskStatus]]:
    """Those tasks that are asked for, with their numbers."""
    for row in rows:
        if matches(row.labels, request.labels) and in_states(status := task_status(executor, row), states):
            yield row.number, status


def ended_states(states: States) -> list[str]:
    """What the store may select by: nothing when rollouts that have not ended are wanted too."""
    return [name for name, state in ENDED.items() if state in states] if not OPEN_STATES & set(states) else []


def in_states(status: executor_pb2.TaskStatus, states: States) -> bool:
    """Whether one of a task's rollouts is in one of these states; any will do when none are given."""
    return not states or any(rollout.state in states for rollout in status.rollouts)


def page_of(request: executor_pb2.ListTasksRequest) -> tuple[int, int]:
    """Where a page begins, and its size."""
    if request.page_token and not re.fullmatch(r"[0-9]{1,18}", request.page_token):
        raise InvalidArgument({"page_token": "is not one of ours; give `next_page_token` of the last answer"})
    size = request.page_size or DEFAULT_PAGE_SIZE
    if not 1 <= size <= MAX_PAGE_SIZE:
        raise InvalidArgument({"page_size": f"is {size}; give 1 to {MAX_PAGE_SIZE}, or 0 for {DEFAULT_PAGE_SIZE}"})
    return int(request.page_token or LAST_NUMBER), size
