"""What the proxy knows of a model: tokenizer, template and sizes, from a folder in Hugging Face's layout."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from tokenizers import Tokenizer

from practicum.common.errors import ConfigError
from practicum.inference_proxy.template import compile_template


@dataclass(frozen=True, slots=True)
class Model:
    """Read once, at start."""

    folder: Path
    tokenizer: Tokenizer
    template: jinja2.Template
    special_tokens: dict[str, str]
    """What templates are given by name, such as `bos_token`."""
    end_ids: frozenset[int]
    """Tokens that end an answer."""
    vocabulary: int
    """Ids are 0 to `vocabulary` - 1."""
    digest: str
    """`sha256:` of the bytes of tokenizer.json followed by the template's text."""


def load_model(folder: Path) -> Model:
    """Reads tokenizer.json, tokenizer_config.json, config.json and the template. ConfigError names what is missing."""
    if not folder.is_dir():
        raise ConfigError(f"--model {folder} is not a folder: give one with tokenizer.json and a chat template")
    packed = read(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_buffer(packed)
    settings = read_json(folder / "tokenizer_config.json")
    config = read_json(folder / "config.json")
    text = template_text(folder, settings)
    special = {name: token for name, value in settings.items() if (token := token_text(name, value))}
    return Model(
        folder=folder,
        tokenizer=tokenizer,
        template=compile_template(text),
        special_tokens=special,
        end_ids=frozenset(end_ids(folder, config, tokenizer.token_to_id(special.get("eos_token", "")))),
        vocabulary=int((config.get("text_config") or config)["vocab_size"]),
        digest=f"sha256:{hashlib.sha256(packed + text.encode()).hexdigest()}",
    )


def template_text(folder: Path, settings: dict[str, Any]) -> str:
    """The template: from its own file, or from the tokenizer's settings, where there may be several by name."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text()
    found = settings.get("chat_template")
    if isinstance(found, list):
        by_name = {entry["name"]: entry["template"] for entry in found}
        found = by_name.get("tool_use", by_name.get("default"))
    if not isinstance(found, str):
        raise ConfigError(f"--model {folder} has no chat template: add chat_template.jinja")
    return found


def token_text(name: str, value: Any) -> str | None:
    """A special token's text, written as text or as an object."""
    if not name.endswith("_token"):
        return None
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def end_ids(folder: Path, config: dict[str, Any], eos_token: int | None) -> Iterable[int]:
    """Tokens at which the engine stops: the tokenizer's, and those that either configuration names."""
    file = folder / "generation_config.json"
    generation = read_json(file) if file.is_file() else {}
    for found in (eos_token, config.get("eos_token_id"), generation.get("eos_token_id")):
        if isinstance(found, list):
            yield from found
        elif found is not None:
            yield found


def read(file: Path) -> bytes:
    """A file that must be there."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"--model {file.parent} has no readable {file.name}") from error


def read_json(file: Path) -> dict[str, Any]:
    """A file that must be there and hold an object."""
    try:
        value = json.loads(read(file))
    except ValueError as error:
        raise ConfigError(f"{file} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{file} is not a JSON object")
    return value
