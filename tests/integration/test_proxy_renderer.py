"""Rendering: later turns extend the recorded tokens, whatever a template does to earlier ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from practicum.common.errors import ConfigError, InvalidArgument
from practicum.environments.boxes.model import TOOLS, make_tokenizer
from practicum.inference_proxy.conversation import Call, Turn
from practicum.inference_proxy.graph import Role
from practicum.inference_proxy.model import load_model
from practicum.inference_proxy.packing import unpack_ids
from practicum.inference_proxy.renderer import Renderer

TOOLS_JSON = json.dumps(TOOLS)
CALL = Turn("assistant", "", (Call("1", "box__open", '{"id": "17"}'),))
CONVERSATION = [Turn("user", "Open box 17."), CALL, Turn("tool", "box 20", answers="1")]
# Like Qwen3's: what the assistant thought in earlier turns is dropped.
FORGETFUL = """{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content.split('</think>')[-1] if message.role == 'assistant' else message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder without its weights."""
    folder = tmp_path_factory.mktemp("model")
    make_tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text('{"vocab_size": 512, "eos_token_id": 2}')
    return folder


def text_of(renderer: Renderer, ids: list[int]) -> str:
    """Tokens as text."""
    return str(renderer._model.tokenizer.decode(ids, skip_special_tokens=False))


def joined(segments: list) -> list[int]:
    """The tokens of segments."""
    return [token for segment in segments for token in unpack_ids(segment.token_ids)]


def test_a_first_turn_is_rendered_as_transformers_does(folder: Path) -> None:
    """Same tokens, and the answer's header is a segment of its own."""
    renderer = Renderer(load_model(folder))
    segments = renderer.first(CONVERSATION[:1], TOOLS_JSON)
    expected = make_tokenizer().apply_chat_template(
        [{"role": "user", "content": "Open box 17."}], tools=TOOLS, add_generation_prompt=True, return_dict=False
    )
    assert joined(segments) == expected
    assert [segment.role for segment in segments] == [Role.PROMPT, Role.TEMPLATE]
    assert text_of(renderer, joined(segments[1:])) == "<|im_start|>assistant\n"


@pytest.mark.parametrize(("ended", "begins"), [(True, "\n<|im_start|>"), (False, "<|im_end|>\n<|im_start|>")])
def test_a_following_turn_is_only_what_is_new(folder: Path, ended: bool, begins: str) -> None:
    """The end of the answer is read only when it was not sampled."""
    renderer = Renderer(load_model(folder))
    segments = renderer.following(CONVERSATION, matched=2, tools_json=TOOLS_JSON, ended=ended)
    text = text_of(renderer, joined(segments))
    assert text.startswith(begins)
    assert text.endswith("<tool_response>\nbox 20\n</tool_response><|im_end|>\n<|im_start|>assistant\n")
    assert [segment.role for segment in segments] == [Role.TOOL, Role.TEMPLATE]


def test_a_template_that_rewrites_history_does_not_rewrite_the_record(folder: Path, tmp_path: Path) -> None:
    """What follows is the same whether the answer's thinking is dropped or not."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "chat_template.jinja").write_text(FORGETFUL)
    renderer = Renderer(load_model(tmp_path))
    turns = [Turn("user", "a"), Turn("assistant", "<think>b</think>c"), Turn("user", "d")]
    segments = renderer.following(turns, matched=2, tools_json="", ended=True)
    assert text_of(renderer, joined(segments)) == "\n<|im_start|>user\nd<|im_end|>\n<|im_start|>assistant\n"


def test_text_that_looks_like_the_marker_of_another_process_changes_nothing(folder: Path) -> None:
    """The marker can't be guessed, so no tool's answer hides what stands before it."""
    renderer = Renderer(load_model(folder))
    turns = [*CONVERSATION[:2], Turn("tool", "answer" + "0" * 32, answers="1")]
    segments = renderer.following(turns, matched=2, tools_json=TOOLS_JSON, ended=True)
    assert "answer" + "0" * 32 in text_of(renderer, joined(segments))


@pytest.mark.parametrize("tools", ["{", "{}", "5"])
def test_tools_that_are_no_json_array_are_refused(folder: Path, tools: str) -> None:
    """With the field's name."""
    with pytest.raises(InvalidArgument, match="tools_json"):
        Renderer(load_model(folder)).first(CONVERSATION[:1], tools)


def test_a_conversation_that_the_template_refuses_is_the_callers_fault(folder: Path, tmp_path: Path) -> None:
    """With the template's own words."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "chat_template.jinja").write_text(
        "{% if messages[0].role == 'tool' %}{{ raise_exception('begin with a user') }}{% endif %}x"
    )
    with pytest.raises(InvalidArgument, match="begin with a user"):
        Renderer(load_model(tmp_path)).first([Turn("tool", "b")], "")


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("tokenizer.json", "no readable tokenizer.json"),
        ("config.json", "no readable config.json"),
        ("chat_template.jinja", "has no chat template"),
    ],
)
def test_a_folder_that_is_no_model_is_named_with_what_is_missing(
    folder: Path, tmp_path: Path, missing: str, named: str
) -> None:
    """At start, not at the first call."""
    for file in folder.iterdir():
        if file.name != missing:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ConfigError, match=named):
        load_model(tmp_path)


def test_the_digest_tells_tokenizers_and_templates_apart(folder: Path, tmp_path: Path) -> None:
    """Trainers refuse tokens of another one."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert load_model(tmp_path).digest == load_model(folder).digest
    (tmp_path / "chat_template.jinja").write_text("other")
    assert load_model(tmp_path).digest != load_model(folder).digest
