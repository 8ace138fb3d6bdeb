"""Supervised fine-tuning with AReaL's language-model engine, on stored trajectories."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from areal.api import FinetuneSpec
from areal.api.cli_args import MicroBatchSpec, TrainEngineConfig

from practicum.trainer.areal_engines import LanguageModel, join_process_group, optimizer
from practicum.trainer.context import RunContext
from practicum.trainer.conversation import TemplateError, encoded, messages_of, pieces_of, tools_of
from practicum.trainer.outcome import RunFailed
from practicum.trainer.publishing import write_whole
from practicum.trainer.settings import warm_up_and_decay
from practicum.v1 import trainer_pb2, trajectory_pb2

BETA2 = 0.95
TOKENS_PER_MICRO_BATCH = 8192

Sample = tuple[list[int], list[int]]


def fine_tune(context: RunContext, stage: trainer_pb2.Stage) -> Path:
    """Trains, and publishes what was trained. A stage that was cut short begins anew: it takes half a minute."""
    context.reporter.begin(stage.name, stage.sft.steps)
    stored = context.rollouts.stored(stage.sft, consumer=context.consumer(stage.name), note=context.reporter.note)
    trajectories = context.loop.wait(stored)
    engine = open_engine(context, stage.sft)
    try:
        samples = rendered(trajectories, engine.tokenizer)
        batches = drawn(samples, size=stage.sft.batch_size, seed=context.spec.seed)
        for step in range(stage.sft.steps):
            context.loop.check()
            context.reporter.step(train(engine, padded(next(batches)), step=step + 1, steps=stage.sft.steps))
        model = context.output / "models" / stage.name
        write_whole(model, engine.write_model)
    finally:
        engine.destroy()
    context.publisher.publish_model(model)
    return model


def open_engine(context: RunContext, stage: trainer_pb2.SftStage) -> LanguageModel:
    """The engine, with the weights that the stage begins with."""
    config = TrainEngineConfig(
        experiment_name=context.spec.run_id,
        trial_name="sft",
        path=str(context.model),
        backend="fsdp:d1",
        attn_impl="sdpa",
        dtype="float32",
        optimizer=optimizer(stage.learning_rate, beta2=BETA2),
        mb_spec=MicroBatchSpec(max_tokens_per_mb=TOKENS_PER_MICRO_BATCH),
    )
    join_process_group()
    engine = LanguageModel(config)
    engine.create_process_group()
    engine.initialize(None, FinetuneSpec(1, stage.steps * stage.batch_size, stage.batch_size))
    engine.follow(partial(warm_up_and_decay, steps=stage.steps))
    return engine


def rendered(trajectories: Sequence[trajectory_pb2.Trajectory], tokenizer: Any) -> list[Sample]:
    """Token ids and loss masks, with the model's own template and tokenizer."""
    encode = partial(tokenizer.encode, add_special_tokens=False)
    try:
        return [encoded(pieces(trajectory, tokenizer), encode) for trajectory in trajectories]
    except TemplateError as error:
        raise RunFailed(str(error)) from error


def pieces(trajectory: trajectory_pb2.Trajectory, tokenizer: Any) -> Any:
    """The trajectory's text, cut where training begins and ends."""

    def render(messages: Sequence[dict[str, Any]], header: bool) -> str:
        return str(
            tokenizer.apply_chat_template(
                list(messages), tools=tools_of(trajectory), tokenize=False, add_generation_prompt=header
            )
        )

    return pieces_of(messages_of(trajectory), render=render, end=tokenizer.eos_token)


def drawn(samples: Sequence[Sample], *, size: int, seed: int) -> Iterator[list[Sample]]:
    """Batches for ever: each sample once, in a random order, before any comes again."""
    source, waiting = random.Random(seed), list[Sample]()
    while True:
        while len(waiting) < size:
            waiting += source.sample(samples, len(samples))
        yield waiting[:size]
        del waiting[:size]


def padded(samples: Sequence[Sample]) -> dict[str, torch.Tensor]:
    """AReaL's tensors: [samples, longest], padded on the right."""
    shape = (len(samples), max(len(ids) for ids, _ in samples))
    batch = {
        "input_ids": torch.zeros(shape, dtype=torch.int64),
        "attention_mask": torch.zeros(shape, dtype=torch.bool),
        "loss_mask": torch.zeros(shape, dtype=torch.int32),
    }
    for row, (ids, mask) in enumerate(samples):
        batch["input_ids"][row, : len(ids)] = torch.tensor(ids)
        batch["attention_mask"][row, : len(ids)] = True
        batch["loss_mask"][row, : len(ids)] = torch.tensor(mask, dtype=torch.int32)
    return batch


def train(engine: LanguageModel, batch: dict[str, torch.Tensor], *, step: int, steps: int) -> trainer_pb2.StepMetrics:
    """One step."""
    began = time.monotonic()
    engine.train_lm([batch])
    engine.step_lr_scheduler()
    stats = engine.export_stats()
    return trainer_pb2.StepMetrics(
        step=step, steps=steps, loss=stats["sft/loss/avg"], train_seconds=time.monotonic() - began, metrics=stats
    )
