"""Small models for tests: one that plays a game of boxes, and checkpoints that talk without an end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from practicum.environments.boxes.model import TOOLS, make_model, make_tokenizer

QUESTION = "Open box 17. What is in the end of the chain?"
FOUND = ("box 204", "coin 53")
FILE = "model.safetensors"


def make_player(folder: Path, *, steps: int = 100) -> None:
    """A model that has learnt one game by heart, so that it really calls its tool and really answers."""
    torch.set_num_threads(1)  # Many times faster where cores are shared.
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, seed=0)
    text = tokenizer.apply_chat_template(game(), tools=TOOLS, tokenize=False)
    ids = torch.tensor([tokenizer(text, add_special_tokens=False)["input_ids"]])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def game() -> list[dict[str, Any]]:
    """The game that is learnt: two calls, then the answer."""
    return [
        {"role": "user", "content": QUESTION},
        *turn("17", FOUND[0]),
        *turn("204", FOUND[1]),
        {"role": "assistant", "content": "<answer>53</answer>"},
    ]


def turn(box: str, found: str) -> list[dict[str, Any]]:
    """A call and what came of it."""
    call = {"type": "function", "function": {"name": "box__open", "arguments": {"id": box}}}
    return [{"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "content": found}]


def make_talker(model: Path, folder: Path, *, seed: int, end_ids: tuple[int, ...]) -> Path:
    """A checkpoint of the same shape with other weights, to which the end of an answer is all but impossible."""
    source = torch.Generator().manual_seed(seed)
    tensors = load_file(model / FILE)
    changed = {name: value + 0.02 * torch.randn(value.shape, generator=source) for name, value in tensors.items()}
    head = 0.3 * torch.randn(tensors["lm_head.weight"].shape, generator=source)
    head[list(end_ids)] = 0.0
    folder.mkdir(parents=True)
    save_file({**changed, "lm_head.weight": head}, folder / FILE)
    return folder
