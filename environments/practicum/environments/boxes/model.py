"""Makes a model small enough to learn the game on two cores: `python -m practicum.environments.boxes.model --help`.

A Qwen3 of 1.06 M random parameters, and a tokenizer trained on dialogues of the game. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from practicum.environments.boxes.game import TOOL_DESCRIPTION, TOOL_NAME, TOOL_SCHEMA, draw

VOCABULARY = 512
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
TAGS += ["<answer>", "</answer>"]
TOOLS = [
    {
        "type": "function",
        "function": {"name": f"box__{TOOL_NAME}", "description": TOOL_DESCRIPTION, "parameters": TOOL_SCHEMA},
    }
]


def main() -> None:
    """Writes the model in Hugging Face's layout."""
    parser = argparse.ArgumentParser(prog="python -m practicum.environments.boxes.model", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder for the model")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    tokenizer = make_tokenizer()
    make_model(tokenizer, arguments.seed).save_pretrained(arguments.output)
    tokenizer.save_pretrained(arguments.output)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with single digits. Without a word pattern the JSON around a call becomes one token, so that
    a dialogue averages 69 tokens instead of 222."""
    bpe = Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(TAGS),
        special_tokens=CONTROL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus(wrap(bpe)), trainer)
    bpe.add_tokens([AddedToken(tag, normalized=False, special=False) for tag in TAGS])
    return wrap(bpe)


def wrap(bpe: Tokenizer) -> PreTrainedTokenizerFast:
    """The tokenizer with the chat template."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        model_max_length=2048,
    )
    tokenizer.chat_template = (Path(__file__).parent / "template.jinja").read_text().rstrip("\n")
    return tokenizer


def corpus(tokenizer: PreTrainedTokenizerFast, dialogues: int = 300) -> list[str]:
    """Rendered dialogues, cut at tags, which are tokens of their own."""
    source = random.Random(0)
    cut = re.compile("|".join(map(re.escape, CONTROL + TAGS)))
    rendered = [tokenizer.apply_chat_template(dialogue(source), tools=TOOLS, tokenize=False) for _ in range(dialogues)]
    return [piece for text in rendered for piece in cut.split(str(text)) if piece]


def dialogue(source: random.Random) -> list[dict[str, object]]:
    """A game played to its end."""
    boxes = draw(source)
    messages: list[dict[str, object]] = [{"role": "user", "content": boxes.instruction}]
    for box in boxes.chain:
        call = {"type": "function", "function": {"name": f"box__{TOOL_NAME}", "arguments": json.dumps({"id": box})}}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": boxes.open(box)},
        ]
    return [*messages, {"role": "assistant", "content": f"<answer>{boxes.coin}</answer>"}]


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Random float32 weights. Embeddings are untied and heads are 64 wide, as vLLM's CPU build and its updates need."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=576,
        num_hidden_layers=2,
        num_attention_heads=3,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    return Qwen3ForCausalLM(config).float()


if __name__ == "__main__":
    main()
