"""Carries out a run's stages in order, and goes on where an earlier start left off."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Protocol

from practicum.trainer.context import RunContext
from practicum.trainer.evaluation import evaluate
from practicum.trainer.publishing import copy_model, write_whole
from practicum.v1 import trainer_pb2


class Backend(Protocol):
    """Trains. Each stage begins with the weights of `context.progress.now.model`, which are being served, and
    returns a folder with the trained ones, which are being served too."""

    def warm_up(self) -> None:
        """Called at the start, while the first stage may already run."""

    def sft(self, context: RunContext, stage: trainer_pb2.Stage) -> Path:
        """Supervised fine-tuning."""

    def grpo(self, context: RunContext, stage: trainer_pb2.Stage) -> Path:
        """Asynchronous GRPO."""


def carry_out(context: RunContext, backend: Backend) -> None:
    """Every stage that is not done. First publishes the weights to go on with, so that what is measured or sampled
    is this run's model, whatever was served before."""
    now = context.progress.now
    context.progress.change(incarnation=now.incarnation + 1)
    if now.incarnation:
        context.reporter.note(resumption(context.spec, context))
    backend.warm_up()
    context.loop.wait(context.rollouts.start())
    context.publisher.publish_model(Path(now.model))
    for index in range(now.stage, len(context.spec.stages)):
        context.loop.check()
        model = carry_out_stage(context, backend, context.spec.stages[index])
        context.progress.change(stage=index + 1, model=str(model), checkpoint=None)
        shutil.rmtree(context.output / "checkpoints", ignore_errors=True)
    write_whole(context.output / "model", lambda folder: copy_model(context.model, folder))
    context.loop.call(context.rollouts.forget())


def carry_out_stage(context: RunContext, backend: Backend, stage: trainer_pb2.Stage) -> Path:
    """One stage. Returns the model that the next begins with."""
    context.reporter.stage = stage.name
    match stage.WhichOneof("kind"):
        case "sft":
            return backend.sft(context, stage)
        case "grpo":
            return backend.grpo(context, stage)
        case _:
            evaluate(context, stage)
            return context.model


def resumption(spec: trainer_pb2.RunSpec, context: RunContext) -> str:
    """What a restarted run says."""
    now = context.progress.now
    if now.stage >= len(spec.stages):
        return "went on after the last stage"
    name = spec.stages[now.stage].name
    if now.checkpoint is None:
        return f"went on from the beginning of stage {name}"
    return f"went on from step {now.checkpoint.step} of stage {name}"
