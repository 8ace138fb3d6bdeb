"""AReaL's side of the rollouts: the workflow runs a task's group at the executor, the inference engine admits groups as
AReaL bounds their staleness, and a batch is taken apart again into what is told and what is trained."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from areal.api import RolloutWorkflow
from areal.api.cli_args import InferenceEngineConfig
from areal.infra import RemoteInfEngine, WorkflowExecutor
from areal.utils import logging

from practicum.trainer.consumption import TrainableGroup, informative, padded
from practicum.trainer.practice import Consumed, Practice
from practicum.v1 import task_pb2

TensorDict = dict[str, torch.Tensor]
# Which group the rows of a dictionary are, in a tensor so that AReaL carries it along.
GROUP = "group"


class PublishedEngine(RemoteInfEngine):
    """What AReaL takes for the inference engine. Generation happens behind the executor, and weights are published
    through the proxy, so all that is left is admission and the version."""

    def __init__(self, config: InferenceEngineConfig) -> None:
        super().__init__(config, backend=None)
        self.logger = logging.getLogger("PublishedEngine")

    def initialize(self, *_: Any, train_data_parallel_size: int | None = None, **__: Any) -> None:
        """There is no server to look for."""
        self.workflow_executor = WorkflowExecutor(config=self.config, inference_engine=self)
        self.workflow_executor.initialize(logger=self.logger, train_data_parallel_size=train_data_parallel_size)
        self._initialized = True

    def fail(self, error: BaseException) -> None:
        """Ends AReaL's waiting for a batch with an error, as it does when one of its own threads fails."""
        dispatcher = self.workflow_executor.dispatcher
        dispatcher._set_thread_exception(error)
        with dispatcher._result_cv:
            dispatcher._result_cv.notify_all()

    def fill(self) -> None:
        """Enqueues as much as AReaL allows to wait. By itself it enqueues one batch, and the next only when that is not
        whole within a second: rollouts that take less time than that would stand still during each step."""
        executor = self.workflow_executor
        room = executor.staleness_manager.get_pending_limit() - executor.staleness_manager.get_stats().enqueued
        for _ in range(room):
            executor.dispatcher.submit_task_input(next(executor.data_generator))

    def reject_accepted(self) -> None:
        """A group that was accepted is not trained on: another may be admitted in its place."""
        manager = self.workflow_executor.staleness_manager
        with manager.lock:
            manager.rollout_stat.accepted -= 1
            manager.rollout_stat.rejected += 1


class GroupWorkflow(RolloutWorkflow):
    """Runs a task's group. Groups wait in `ready` until their batch is taken."""

    def __init__(self, practice: Practice) -> None:
        self._practice = practice
        self._ids = itertools.count()
        self.ready: dict[int, TrainableGroup] = {}

    async def arun_episode(self, engine: PublishedEngine, data: dict[str, Any]) -> TensorDict | None:
        """The group's rows, or None when it was rejected whole. AReaL would go on after an error: the stage ends."""
        task: task_pb2.Task = data["task"]
        try:
            group = await asyncio.wrap_future(self._practice.context.loop.start(self._practice.group(task)))
        except Exception as error:
            engine.fail(error)
            raise
        if group is None:
            return None
        number = next(self._ids)
        self.ready[number] = group
        rows = {name: torch.from_numpy(array) for name, array in padded(group).items()}
        return rows | {GROUP: torch.full((len(group.rows),), number, dtype=torch.int64)}


@dataclass(frozen=True, slots=True)
class Sized:
    """A loader with another batch size. AReaL asks for nothing else once it has begun to draw from the first one."""

    loader: Any
    batch_size: int

    def __iter__(self) -> Any:
        return iter(self.loader)


class Batch:
    """The groups of one step, as they are taken from AReaL."""

    def __init__(self, practice: Practice, engine: PublishedEngine, workflow: GroupWorkflow) -> None:
        self._practice, self._engine, self._workflow = practice, engine, workflow
        self._taken: list[tuple[TrainableGroup, TensorDict]] = []
        self.consumed: list[Consumed] = []

    @property
    def missing(self) -> int:
        """Groups that are still to be taken."""
        return self._practice.settings.groups_per_step - len(self._taken)

    def take(self, arrived: Sequence[TensorDict]) -> None:
        """Takes those that are not too stale by now."""
        for rows in arrived:
            group = self._workflow.ready.pop(int(rows.pop(GROUP)[0]))
            if self._practice.fresh(group.oldest_step):
                self._taken.append((group, rows))
                self.consumed.append(self._practice.consumed(group))
            else:
                self._engine.reject_accepted()

    def rows(self) -> list[TensorDict]:
        """What is computed on: see `informative`."""
        groups = [group for group, _ in self._taken]
        kept, scale = informative([group.advantages for group in groups], [group.tokens for group in groups])
        rows = [self._taken[index][1] for index in kept]
        return [one | {"rewards": one["rewards"] * scale} for one in rows]
