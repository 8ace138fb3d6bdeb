"""Reads a checkpoint and says what is wrong with it, before any of it may reach a model.

Folders are named without their path: vLLM blanks out paths in its answers.
"""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

Layout = dict[str, tuple[tuple[int, ...], str]]
"""By name: shape, and type as safetensors writes it."""
NAMED = 3
"""How many differences are told; a checkpoint of another model differs in all."""


def layout(folder: Path) -> Layout:
    """What the *.safetensors of a folder hold, from their headers. ValueError names what is missing or broken."""
    found: Layout = {}
    for file in files_of(folder):
        try:
            with safe_open(file, framework="pt") as tensors:
                slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118 — it is no mapping
                found |= {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}
        except (OSError, SafetensorError) as error:
            raise ValueError(f"{file.name} can't be read: {error}") from error
    return found


def read(folder: Path, served: Layout) -> dict[str, torch.Tensor]:
    """All tensors by name. ValueError unless they have the served model's layout and only finite numbers."""
    refuse(difference(layout(folder), served))
    tensors: dict[str, torch.Tensor] = {}
    for file in files_of(folder):
        tensors |= load_file(file)
    # One step of training that diverged fills everything with NaN; serving it would end every rollout.
    refuse([f"{name} has values that are not finite" for name, t in tensors.items() if not torch.isfinite(t).all()])
    return tensors


def files_of(folder: Path) -> list[Path]:
    """The files of a checkpoint."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ValueError(f"no *.safetensors in the folder {folder.name}")
    return files


def difference(found: Layout, served: Layout) -> list[str]:
    """What differs, a sentence each."""
    return [
        *(f"{name} is missing" for name in sorted(served.keys() - found.keys())),
        *(f"{name} is unknown" for name in sorted(found.keys() - served.keys())),
        *(
            f"{name} is {describe(found[name])} instead of {describe(served[name])}"
            for name in sorted(served.keys() & found.keys())
            if found[name] != served[name]
        ),
    ]


def refuse(wrong: list[str]) -> None:
    """Raises ValueError if anything is wrong."""
    if wrong:
        more = f" (and {len(wrong) - NAMED} more)" if len(wrong) > NAMED else ""
        raise ValueError("; ".join(wrong[:NAMED]) + more)


def describe(entry: tuple[tuple[int, ...], str]) -> str:
    """A tensor's shape and type, for a person."""
    shape, dtype = entry
    return f"{list(shape)} {dtype}"
