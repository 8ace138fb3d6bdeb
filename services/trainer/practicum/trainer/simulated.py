"""A trainer that sleeps instead of training, and does everything else for real: it consumes trajectories, bounds their
staleness, publishes versions and keeps checkpoints. So the rest can be measured and broken without AReaL."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from pathlib import Path

from practicum.trainer.consumption import TrainableGroup
from practicum.trainer.context import RunContext
from practicum.trainer.outcome import RunStopped
from practicum.trainer.practice import Practice
from practicum.trainer.publishing import copy_model
from practicum.trainer.tasks import read_tasks
from practicum.v1 import trainer_pb2

STEP_SECONDS = 0.05


class SimulatedBackend:
    """The weights never change; the versions do."""

    def warm_up(self) -> None:
        """Nothing to load."""

    def sft(self, context: RunContext, stage: trainer_pb2.Stage) -> Path:
        """Waits for the trajectories, and sleeps."""
        context.reporter.begin(stage.name, stage.sft.steps)
        stored = context.rollouts.stored(stage.sft, consumer=context.consumer(stage.name), note=context.reporter.note)
        context.loop.wait(stored)
        for step in range(stage.sft.steps):
            context.loop.wait(asyncio.sleep(STEP_SECONDS))
            context.reporter.step(
                trainer_pb2.StepMetrics(step=step + 1, steps=stage.sft.steps, train_seconds=STEP_SECONDS)
            )
        context.publisher.publish_model(context.model)
        return context.model

    def grpo(self, context: RunContext, stage: trainer_pb2.Stage) -> Path:
        """Trains by sleeping. When it is told to stop, it keeps a checkpoint first."""
        practice = Practice(context, stage)
        practice.adopt_published()
        try:
            SimulatedLoop(practice).run()
        except RunStopped:
            practice.keep()
            raise
        finally:
            practice.end()
        return context.model


class SimulatedLoop:
    """The loop of one stage. Admission follows AReaL: (max_staleness + step + 1) · groups in all may be accepted or
    running, and so many at once."""

    def __init__(self, practice: Practice) -> None:
        self._practice = practice
        self._settings = practice.settings
        tasks = read_tasks(Path(practice.stage.grpo.tasks_path))
        begun = practice.step * self._settings.groups_per_step
        self._tasks = itertools.islice(itertools.cycle(tasks), begun % len(tasks), None)
        self._running: set[Future[TrainableGroup | None]] = set()
        self._ready: deque[TrainableGroup] = deque()

    def run(self) -> None:
        """Every step that is left."""
        practice = self._practice
        while practice.step < self._settings.steps:
            self._train()
            if practice.due():
                practice.keep()

    def _train(self) -> None:
        practice, loop = self._practice, self._practice.context.loop
        consumed = [practice.consumed(group) for group in self._batch()]
        practice.clock.batched = time.monotonic()
        loop.wait(asyncio.sleep(STEP_SECONDS))
        practice.clock.trained = time.monotonic()
        model = practice.context.model
        practice.publish(lambda folder: copy_model(model, folder), step=practice.step + 1)
        practice.clock.published = time.monotonic()
        practice.context.reporter.step(practice.metrics(consumed))

    def _batch(self) -> list[TrainableGroup]:
        batch: list[TrainableGroup] = []
        while len(batch) < self._settings.groups_per_step:
            self._practice.context.loop.check()
            self._admit(len(batch))
            if not self._ready:
                self._gather()
            elif self._practice.fresh((group := self._ready.popleft()).oldest_step):
                batch.append(group)
        return batch

    def _admit(self, taken: int) -> None:
        settings = self._settings
        allowed = (settings.max_staleness + 1) * settings.groups_per_step - taken - len(self._ready)
        for _ in range(min(settings.max_concurrent_groups, allowed) - len(self._running)):
            self._running.add(self._practice.context.loop.start(self._practice.group(next(self._tasks))))

    def _gather(self) -> None:
        done, self._running = wait(self._running, timeout=0.2, return_when=FIRST_COMPLETED)
        self._ready += [group for future in done if (group := future.result()) is not None]
