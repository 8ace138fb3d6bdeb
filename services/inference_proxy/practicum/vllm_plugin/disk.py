"""The weight-transfer engine: checkpoints are staged and checked first, then swapped in a pause."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from practicum.vllm_plugin.checkpoint import layout, read


@dataclass
class StageInfo(WeightTransferInitInfo):
    """What to stage, or nothing to drop what is staged."""

    path: str = ""


@dataclass
class SwapInfo(WeightTransferUpdateInfo):
    """What to swap in."""

    path: str


class DiskEngine(WeightTransferEngine[StageInfo, SwapInfo]):
    """`/init_weight_transfer_engine` stages a checkpoint, `/update_weights` swaps it in.

    A checkpoint that is refused never touches the model, whichever of the two calls it comes with.
    """

    init_info_cls, update_info_cls = StageInfo, SwapInfo
    supports_draft_weight_update = False

    def __init__(self, config: Any, vllm_config: Any, device: torch.device, model: torch.nn.Module) -> None:
        """Remembers what the served checkpoint looks like. vLLM's own parameters are fused, and can't be compared."""
        super().__init__(config, vllm_config, device, model)
        self._layout = layout(Path(vllm_config.model_config.model))
        self._staged: tuple[str, dict[str, torch.Tensor]] | None = None

    def init_transfer_engine(self, init_info: StageInfo) -> None:
        """Reads and checks a checkpoint. No step runs while it reads, but none is lost, and nothing is paused."""
        self._staged = None
        if init_info.path:
            self._staged = (init_info.path, read(Path(init_info.path), self._layout))

    def start_weight_update(self) -> None:
        """Nothing to do: there is one chunk, and it brings everything."""

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """As the base class's, which calls into an accelerator even where there is none."""
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: SwapInfo) -> None:
        """Swaps the staged checkpoint in, layer by layer, since layers pack their weights after loading."""
        staged, self._staged = self._staged, None
        tensors = staged[1] if staged and staged[0] == update_info.path else read(Path(update_info.path), self._layout)
        initialize_layerwise_reload(self.model)
        self.model.load_weights(tensors.items())
        finalize_layerwise_reload(self.model, self.model_config)

    def finish_weight_update(self) -> None:
        """Nothing to do: the swap is whole when `receive_weights` returns."""

    def shutdown(self) -> None:
        """Drops what is staged."""
        self._staged = None
