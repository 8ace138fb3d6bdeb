"""One stage of GRPO, apart from who trains it: groups are run and judged, steps counted, published, told and kept."""

from __future__ import annotations

import asyncio
import itertools
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from practicum.trainer.accounting import Rejections
from practicum.trainer.consumption import TrainableGroup, trainable_group
from practicum.trainer.context import RunContext
from practicum.trainer.groups import Rejected
from practicum.trainer.outcome import RunFailed
from practicum.trainer.progress import Checkpoint
from practicum.trainer.publishing import write_whole
from practicum.trainer.settings import GrpoSettings
from practicum.trainer.staleness import Lineage, added, histogram
from practicum.v1 import task_pb2, trainer_pb2

REJECTED_IN_A_ROW = 32
PATIENCE_SECONDS = 120.0


@dataclass(slots=True)
class StepClock:
    """When a step began, had its batch, had trained, and had published; monotonic seconds."""

    began: float = field(default_factory=time.monotonic)
    batched: float = 0.0
    trained: float = 0.0
    published: float = 0.0


class Practice:
    """The stage's state. `step`: optimiser steps made. `group` is called from the loop's thread, the rest from the
    thread that trains."""

    def __init__(self, context: RunContext, stage: trainer_pb2.Stage) -> None:
        self.context = context
        self.stage = stage
        self.settings = GrpoSettings.of(stage.grpo)
        self.checkpoint = context.progress.now.checkpoint
        kept = self.checkpoint or Checkpoint(step=0, folder="")
        self.step = kept.step
        self.rejections = Rejections(REJECTED_IN_A_ROW, PATIENCE_SECONDS, total=kept.rejected_groups)
        self._lineage = Lineage(kept.lineage)
        self._maker = context.maker(stage.name)
        self._numbers = itertools.count()
        self._ended = False
        asker = f"run.{context.spec.run_id}.{stage.name}"
        self._digest = context.loop.call(context.inference.tokenizer_digest(asker))
        self.clock = StepClock()
        context.reporter.begin(stage.name, self.settings.steps)

    async def group(self, task: task_pb2.Task) -> TrainableGroup | None:
        """Runs a task's group. None when it was rejected whole, which is counted. RunFailed after too many."""
        made = self._maker.make(task, str(next(self._numbers)), temperature=1.0, rollouts=self.settings.group_size)
        trajectories = await self.context.rollouts.run(made)
        if self._ended:
            return None
        try:
            group = trainable_group(
                trajectories, size=self.settings.group_size, tokenizer_digest=self._digest, lineage=self._lineage
            )
        except Rejected as rejected:
            self._reject(str(rejected), passing=rejected.passing)
            await asyncio.sleep(self.rejections.pause_seconds)
            return None
        self.rejections.accepted()
        return group

    def fresh(self, oldest_step: int) -> bool:
        """Whether a group may still be trained on. Asked when its turn comes: admission alone does not bound it."""
        age = self.step - oldest_step
        if age > self.settings.max_staleness:
            self._reject(f"it was {age} steps old when its turn came", passing=True)
        return age <= self.settings.max_staleness

    def _reject(self, why: str, *, passing: bool) -> None:
        if self.rejections.add(why, passing=passing):
            raise RunFailed(f"{REJECTED_IN_A_ROW} groups in a row were rejected; the last because {why}")

    def publish(self, write: Callable[[Path], None], *, step: int) -> int:
        """Publishes the weights after `step` steps. Noted first: their tokens may come back at once."""
        publisher = self.context.publisher
        version = publisher.next_version()
        self._lineage.add(version, step)
        publisher.publish(version, write)
        return version

    def adopt_published(self) -> None:
        """What is being served are the weights after `step` steps."""
        self._lineage.add(self.context.publisher.published, self.step)

    def metrics(self, groups: Sequence[Consumed]) -> trainer_pb2.StepMetrics:
        """What there is to tell of the step that was just made on these groups, and counts it."""
        clock, rewards = self.clock, [reward for group in groups for reward in group.rewards]
        tokens: list[int] = []
        for group in groups:
            tokens = added(tokens, group.ages)
        self.step += 1
        busy = self.context.rollouts.busy
        metrics = trainer_pb2.StepMetrics(
            step=self.step,
            steps=self.settings.steps,
            reward=sum(rewards) / len(rewards),
            staleness_tokens=tokens,
            policy_version=self.context.publisher.published,
            wait_seconds=clock.batched - clock.began,
            train_seconds=clock.trained - clock.batched,
            update_seconds=clock.published - clock.trained,
            overlap_seconds=busy.busy(clock.batched, clock.trained),
            rejected_groups=self.rejections.total,
        )
        whole = max(clock.published - clock.began, 1e-9)
        metrics.metrics["idle/trainer"] = metrics.wait_seconds / whole
        metrics.metrics["idle/rollouts"] = 1.0 - busy.busy(clock.began, clock.published) / whole
        metrics.metrics["success"] = sum(reward >= 1.0 for reward in rewards) / len(rewards)
        self.clock = StepClock()
        return metrics

    def consumed(self, group: TrainableGroup) -> Consumed:
        """What is remembered of a group that is trained on now."""
        return Consumed(group.rewards, histogram(group.steps, now=self.step))

    def end(self) -> None:
        """Cancels what still runs; it is not counted as rejected."""
        self._ended = True
        self.context.loop.call(self.context.rollouts.leave("the stage ended"))

    def due(self) -> bool:
        """Whether a checkpoint is due after the step just made."""
        return self.step % self.settings.checkpoint_every == 0

    def keep(self, write: Callable[[Path], None] | None = None) -> None:
        """Keeps a checkpoint of `step` steps, and then forgets the one before."""
        if self.step == (self.checkpoint.step if self.checkpoint else 0):
            return
        folder = self.context.output / "checkpoints" / f"{self.stage.name}-{self.step}"
        if write is not None:
            write_whole(folder, write)
        self.checkpoint = Checkpoint(
            step=self.step,
            folder=str(folder) if write is not None else "",
            rejected_groups=self.rejections.total,
            lineage=self._lineage.recent(self.settings.max_staleness + 2),
        )
        self.context.progress.change(checkpoint=self.checkpoint)
        for other in folder.parent.glob("*"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Consumed:
    """A group that was trained on: the rewards of its rollouts, and its sampled tokens by staleness."""

    rewards: tuple[float, ...]
    ages: list[int]
