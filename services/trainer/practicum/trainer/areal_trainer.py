"""Asynchronous GRPO with AReaL's PPOTrainer: its loop, losses, staleness manager and recovery, joined to the executor
by the workflow and to the inference proxy by the actor."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from areal import PPOTrainer
from areal.api import WeightUpdateMeta

from practicum.trainer.areal_engines import Actor, join_process_group
from practicum.trainer.areal_rollouts import Batch, GroupWorkflow, PublishedEngine, Sized
from practicum.trainer.areal_settings import ppo_config
from practicum.trainer.context import RunContext
from practicum.trainer.inference import check_probe, random_tokens
from practicum.trainer.outcome import RunFailed, RunStopped
from practicum.trainer.practice import Practice
from practicum.trainer.publishing import write_whole
from practicum.trainer.settings import linear_decay
from practicum.trainer.tasks import read_tasks
from practicum.v1 import task_pb2, trainer_pb2


def practise(context: RunContext, stage: trainer_pb2.Stage) -> Path:
    """Trains every step that is left. Told to stop, it keeps a checkpoint first."""
    practice = Practice(context, stage)
    join_process_group()
    trainer = Trainer(practice)
    context.loop.on_stop = [lambda: trainer.rollout.fail(RunStopped())]
    try:
        context.loop.check()
        trainer.train(workflow=trainer.workflow)
        model = context.output / "models" / stage.name
        write_whole(model, trainer.actor.write_model)
        return model
    except RuntimeError as error:
        cause = error.__cause__  # AReaL wraps what `PublishedEngine.fail` was given.
        if not isinstance(cause, RunStopped | RunFailed):
            raise
        if isinstance(cause, RunStopped):
            trainer.keep()
        raise cause from error
    except RunStopped:
        trainer.keep()
        raise
    finally:
        context.loop.on_stop = []
        practice.end()
        trainer.close()


class Tasks:
    """The stage's tasks for AReaL's loader: as many as it consumes, again from the first when they are used up."""

    def __init__(self, tasks: list[task_pb2.Task], *, count: int) -> None:
        self._tasks, self._count = tasks, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> dict[str, task_pb2.Task]:
        return {"task": self._tasks[index % len(self._tasks)]}


class PractisingActor(Actor):
    """The actor, which takes its batches through `Batch` and publishes its weights through the proxy."""

    practice: Practice
    workflow: GroupWorkflow
    batch: Batch

    def prepare_batch(self, dataloader: Any, **options: Any) -> list[dict[str, torch.Tensor]]:
        """The rows to train on now, once there are enough groups that are not too stale."""
        self.batch = Batch(self.practice, self.rollout_engine, self.workflow)
        while self.batch.missing:
            self.practice.context.loop.check()
            self.batch.take(super().prepare_batch(Sized(dataloader, self.batch.missing), **options))
            self.rollout_engine.fill()
        self.practice.clock.batched = time.monotonic()
        return self.batch.rows()

    def update_weights(self, meta: WeightUpdateMeta) -> None:
        """Publishes. AReaL's versions count optimiser steps, the proxy's never fall: the practice relates them."""
        self.practice.clock.trained = time.monotonic()
        self.practice.publish(self.write_weights, step=meta.version)
        self.practice.clock.published = time.monotonic()


class Trainer(PPOTrainer):
    """AReaL's trainer with our actor and inference engine in it, and its checkpoints whole at any time."""

    def __init__(self, practice: Practice) -> None:
        self._practice = practice
        self.workflow = GroupWorkflow(practice)
        settings, stage = practice.settings, practice.stage
        tasks = Tasks(read_tasks(Path(stage.grpo.tasks_path)), count=settings.steps * settings.groups_per_step)
        super().__init__(ppo_config(practice), train_dataset=tasks)
        if practice.checkpoint is None:
            practice.adopt_published()
        elif self.recover_info is None:
            raise RunFailed(f"the checkpoint in {practice.checkpoint.folder} can't be read")
        schedule = partial(linear_decay, steps=settings.steps, final_ratio=settings.final_learning_rate_ratio)
        self.actor.follow(schedule, step=practice.step)

    def _create_train_engine(self, actor_config: Any, alloc: Any) -> PractisingActor:
        actor = PractisingActor(actor_config)
        actor.practice, actor.workflow = self._practice, self.workflow
        actor.create_process_group(alloc.parallel)
        return actor

    def _init_rollout(self, rollout_config: Any, is_eval: bool = False, lora_path: Any = None) -> Any:
        if is_eval:
            return None  # Measurements are stages of the run.
        engine = PublishedEngine(rollout_config)
        engine.initialize(train_data_parallel_size=1)
        return engine

    def _export_and_commit_stats(self, epoch: int, epoch_step: int, global_step: int) -> None:
        """Tells of the step. AReaL calls this when all else of the step is done."""
        stats = self.actor.export_stats()
        metrics = self._practice.metrics(self.actor.batch.consumed)
        metrics.loss = stats["ppo_actor/update/actor_loss/avg"]
        metrics.probe_kl = self._probe() if self._practice.settings.probe else 0.0
        metrics.metrics.update({name: value for name, value in stats.items() if not name.endswith("__count")})
        self.stats_logger.commit(epoch, epoch_step, global_step, stats)
        self._practice.context.reporter.step(metrics)
        if self._practice.due():
            self.keep()

    def _probe(self) -> float:
        context = self._practice.context
        tokens = random_tokens(self.actor.model_config.vocab_size, seed=self._practice.step)
        engine = context.loop.start(context.inference.logprobs(tokens))
        row = torch.from_numpy(tokens)[None]
        scored = self.actor.compute_logp([{"input_ids": row, "attention_mask": torch.ones_like(row, dtype=torch.bool)}])
        ours = scored[0][0, : len(tokens) - 1].numpy()
        return check_probe(engine.result(), ours, version=context.publisher.published)

    def _save_recover_checkpoint(self, epoch: int, epoch_step: int, global_step: int) -> None:
        """AReaL calls this before the step is counted: it is kept by `keep`, after it was told."""

    def keep(self) -> None:
        """Keeps a checkpoint of AReaL's in a folder of its own, so that the one before stays whole until it is."""
        step = self._practice.step - 1

        def write(folder: Path) -> None:
            self.recover_handler.config.fileroot = str(folder)
            PPOTrainer._save_recover_checkpoint(self, epoch=0, epoch_step=step, global_step=step)

        self._practice.keep(write)
