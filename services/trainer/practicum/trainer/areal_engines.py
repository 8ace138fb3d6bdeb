"""AReaL's engines as they are used here: exact on a CPU, their weights written for the inference proxy.

AReaL packs the sequences of a micro-batch into one row and tells attention where each ends. Only its GPU kernels heed
that: transformers' `sdpa` lets sequences read each other (log-probabilities were off by up to 1.06). So the attention
of this module is registered with transformers, and chosen on a CPU.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from areal.api.cli_args import OptimizerConfig
from areal.engine.fsdp_engine import FSDPEngine, FSDPLMEngine, FSDPPPOActor
from areal.infra.platforms import current_platform
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.optim.lr_scheduler import LambdaLR
from transformers import AttentionInterface

from practicum.trainer.settings import Schedule

ATTENTION = "practicum_variable_length"
WEIGHTS = "model.safetensors"


def variable_length(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    cu_seq_lens_q: torch.Tensor,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention within each of the packed sequences; [1, heads, tokens, width] each, dropout is not used.

    `cu_seq_lens_q`: where the sequences begin, and the end of the last.
    """
    shared = query.shape[1] // key.shape[1]
    if shared > 1:
        key, value = (tensor.repeat_interleave(shared, dim=1) for tensor in (key, value))
    lengths = cu_seq_lens_q.diff().tolist()
    parts = zip(*(tensor.split(lengths, dim=2) for tensor in (query, key, value)), strict=True)
    attended = [F.scaled_dot_product_attention(q, k, v, scale=scaling, is_causal=True) for q, k, v in parts]
    return torch.cat(attended, dim=2).transpose(1, 2).contiguous(), None


AttentionInterface.register(ATTENTION, variable_length)


class ExactOnCpu(FSDPEngine):
    """An engine that reads packed sequences right on a CPU, and follows a schedule of learning rates of ours."""

    schedule: Schedule

    def _create_device_model(self) -> None:
        super()._create_device_model()
        if current_platform.device_type == "cpu":
            self.model.set_attn_implementation(ATTENTION)

    def follow(self, schedule: Schedule, *, step: int = 0) -> None:
        """Learning rates from a step on. AReaL's checkpoints do not hold how far its own schedule was."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"] = self.optimizer_config.lr
        self.lr_scheduler = LambdaLR(self.optimizer, lambda made: schedule(step + made))

    def write_weights(self, folder: Path) -> None:
        """Writes the weights alone. AReaL's own way also writes tokenizer and configurations, at each publication."""
        state = get_model_state_dict(self.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if self.model_config.tie_word_embeddings:
            state.pop("lm_head.weight", None)
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / WEIGHTS, {"format": "pt"})

    def write_model(self, folder: Path) -> None:
        """Writes the weights beside the files of the model that the engine began with, word for word."""
        for file in Path(self.config.path).iterdir():
            if file.is_file() and not file.name.endswith((".safetensors", ".safetensors.index.json")):
                shutil.copy2(file, folder / file.name)
        self.write_weights(folder)


class LanguageModel(ExactOnCpu, FSDPLMEngine):
    """For supervised fine-tuning."""


class Actor(ExactOnCpu, FSDPPPOActor):
    """For PPO."""


def optimizer(learning_rate: float, *, beta2: float) -> OptimizerConfig:
    """AdamW without weight decay, gradients clipped at 1. The schedule is set by `follow`."""
    return OptimizerConfig(
        lr=learning_rate, weight_decay=0.0, beta2=beta2, gradient_clipping=1.0, warmup_steps_proportion=0.0
    )


def join_process_group() -> None:
    """Makes the group of this one process, without a port. AReaL's engines join a group that is there."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
