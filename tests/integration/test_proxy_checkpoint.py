"""The plugin inside of vLLM: what it refuses is refused before a model is touched."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from practicum.vllm_plugin.checkpoint import layout, read

SERVED = {"a": torch.zeros(2, 3), "b": torch.ones(4)}


def checkpoint(folder: Path, tensors: dict[str, torch.Tensor]) -> Path:
    """Writes a folder with one file for each tensor."""
    folder.mkdir()
    for name, tensor in tensors.items():
        save_file({name: tensor}, folder / f"{name}.safetensors")
    return folder


def test_a_checkpoint_in_several_files_is_read_whole(tmp_path: Path) -> None:
    """As large models are written."""
    folder = checkpoint(tmp_path / "good", SERVED)
    assert read(folder, layout(folder)).keys() == SERVED.keys()


@pytest.mark.parametrize(
    ("tensors", "wrong"),
    [
        ({"a": SERVED["a"]}, "^b is missing$"),
        ({**SERVED, "c": torch.ones(1)}, "^c is unknown$"),
        ({**SERVED, "a": torch.zeros(3, 2)}, r"^a is \[3, 2\] F32 instead of \[2, 3\] F32$"),
        ({**SERVED, "b": torch.ones(4).half()}, r"^b is \[4\] F16 instead of \[4\] F32$"),
        ({**SERVED, "b": torch.full((4,), float("inf"))}, "^b has values that are not finite$"),
        ({name: torch.ones(1) for name in "vwxyz"}, r"^a is missing; b is missing; v is unknown \(and 4 more\)$"),
    ],
)
def test_what_differs_is_named(tmp_path: Path, tensors: dict[str, torch.Tensor], wrong: str) -> None:
    """The first three differences, and how many more there are."""
    served = layout(checkpoint(tmp_path / "served", SERVED))
    with pytest.raises(ValueError, match=wrong):
        read(checkpoint(tmp_path / "bad", tensors), served)


def test_a_folder_without_files_is_named_without_its_path(tmp_path: Path) -> None:
    """vLLM blanks out paths in its answers, and callers have no use for them."""
    with pytest.raises(ValueError, match=r"no .*safetensors in the folder nowhere"):
        read(tmp_path / "nowhere", {})


def test_a_file_that_is_cut_off_can_not_be_read(tmp_path: Path) -> None:
    """A trainer that died while it wrote."""
    folder = checkpoint(tmp_path / "cut", SERVED)
    served, file = layout(folder), folder / "a.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(ValueError, match=r"a.safetensors can't be read"):
        read(folder, served)
