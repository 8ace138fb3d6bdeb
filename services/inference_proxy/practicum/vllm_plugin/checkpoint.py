"""Reads a checkpoint and says what is wrong with it, before any of it may reach a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]


def read(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a folder's *.safetensors, by name. ValueError names what is missing or broken.

    Folders are named without their path: vLLM blanks out paths in its answers.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"no *.safetensors in the folder {folder.name}")
    tensors: dict[str, torch.Tensor] = {}
    for file in files:
        try:
            tensors.update(load_file(file))
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{file.name} can't be read: {error}") from error
    return tensors


def layout(tensors: Mapping[str, torch.Tensor]) -> Layout:
    """Names, shapes and types."""
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


def check(tensors: Mapping[str, torch.Tensor], served: Layout) -> None:
    """Raises ValueError unless the tensors have the served model's layout and only finite numbers."""
    found = layout(tensors)
    wrong = [
        *(f"{name} is missing" for name in sorted(served.keys() - found.keys())),
        *(f"{name} is unknown" for name in sorted(found.keys() - served.keys())),
        *(
            f"{name} is {describe(found[name])} instead of {describe(served[name])}"
            for name in sorted(served.keys() & found.keys())
            if found[name] != served[name]
        ),
    ]
    # One step of training that diverged fills everything with NaN; serving it would end every rollout.
    wrong += [f"{name} has values that are not finite" for name, t in tensors.items() if not torch.isfinite(t).all()]
    if wrong:
        more = f" (and {len(wrong) - 3} more)" if len(wrong) > 3 else ""
        raise ValueError("; ".join(wrong[:3]) + more)


def describe(entry: tuple[tuple[int, ...], torch.dtype]) -> str:
    """A tensor's shape and type, for a person."""
    shape, dtype = entry
    return f"{list(shape)} {str(dtype).removeprefix('torch.')}"
