"""Tool calls, stop texts and chunks: what is read out of sampled text, and what is shown of it while it comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from practicum.inference_proxy.chunks import gathered
from practicum.inference_proxy.output import Output, parse_chunk
from practicum.inference_proxy.text import cut_at, settled
from practicum.inference_proxy.tool_calls import parse

TEXT = st.text(alphabet='ab<tool_call>/{}"\n é', max_size=40)
NAMES = st.text(min_size=1, max_size=10).filter(lambda name: name.isprintable())
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=3)


def numbered() -> str:
    """An id."""
    return "id"


@given(TEXT.filter(lambda text: "tool_call" not in text), st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=3))
def test_written_calls_are_read_again(before: str, calls: list[tuple[str, dict[str, object]]]) -> None:
    """Names and arguments as they were written, and the text without them."""
    written = [f"<tool_call>\n{json.dumps({'name': n, 'arguments': a})}\n</tool_call>" for n, a in calls]
    text, found = parse(before + "\n".join(written), new_id=numbered)
    assert [(call.name, json.loads(call.arguments)) for call in found] == calls
    assert text == before.strip()


@given(TEXT)
def test_any_text_is_read_without_an_error_and_without_a_loss(text: str) -> None:
    """Where no call is found, the text stays as it is."""
    rest, calls = parse(text)
    assert calls or rest == text


@pytest.mark.parametrize(
    "inner",
    [
        "",
        "not json",
        "[]",
        '{"arguments": {}}',
        '{"name": "", "arguments": {}}',
        '{"name": 5, "arguments": {}}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": "{}"}',
        '{"name": "f", "arguments": {"a": NaN}}',
        '{"name": "f", "arguments": {"a": "\\ud800"}}',
        '{"name": "f", "arguments": {}',
        "[" * 100_000,
    ],
)
def test_malformed_calls_stay_text(inner: str) -> None:
    """An agent sees what its model really said, and a call that can't be sent is none."""
    text = f"<tool_call>{inner}</tool_call>"
    assert parse(text) == (text, ())


def test_each_call_has_an_id_of_its_own() -> None:
    """Ids are drawn for each call, also for equal ones."""
    call = '<tool_call>{"name": "f"}</tool_call>'
    _, calls = parse(call * 2)
    assert len({call.call_id for call in calls}) == 2
    assert [call.arguments for call in calls] == ["{}", "{}"]


@given(st.text(alphabet="ab<tc>\ufffd", max_size=20), st.lists(st.sampled_from(["<tc>", "ab", "b<"]), max_size=2))
def test_what_is_shown_of_a_growing_text_is_never_taken_back(text: str, marks: list[str]) -> None:
    """Each settled text begins the next, and all begin what stands before the first mark."""
    shown = [settled(text[:size], marks) for size in range(len(text) + 1)]
    assert all(later.startswith(earlier) for earlier, later in pairwise(shown))
    assert all(cut_at(text, marks).startswith(part) for part in shown)


def test_the_text_ends_before_the_first_stop() -> None:
    """Whichever of them comes first."""
    assert cut_at("one two three", ["three", "two"]) == "one "
    assert cut_at("one", []) == "one"


def chunks_of(sizes: list[int], *, seconds: float) -> list[Output]:
    """Pieces of these sizes, gathered while each takes so long."""
    clock = (tick * seconds for tick in count())

    async def pieces() -> AsyncIterator[Output]:
        for size in sizes:
            yield Output([size] * size, [-1.0] * size)
        yield Output([], [], "stop", [{"version": "1", "start": 0, "end": sum(sizes)}])

    async def collect() -> list[Output]:
        return [chunk async for chunk in gathered(pieces(), clock=lambda: next(clock))]

    return asyncio.run(collect())


@given(st.lists(st.integers(0, 5), max_size=60), st.sampled_from([0.0, 0.01, 1.0]))
def test_chunks_hold_every_token_in_order(sizes: list[int], seconds: float) -> None:
    """None is empty but the last, which has the reason."""
    chunks = chunks_of(sizes, seconds=seconds)
    assert [token for chunk in chunks for token in chunk.token_ids] == [size for size in sizes for _ in range(size)]
    assert [chunk.finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert all(chunk.token_ids for chunk in chunks[:-1])


def test_chunks_have_16_tokens_when_they_come_fast_and_are_sent_at_once_when_slow() -> None:
    """One message a token costs too much; a token that is held back for long is not a stream."""
    assert [len(chunk.token_ids) for chunk in chunks_of([1] * 40, seconds=0.0)] == [16, 16, 8]
    assert [len(chunk.token_ids) for chunk in chunks_of([1] * 3, seconds=1.0)] == [1, 1, 1, 0]


def test_an_answer_without_choices_holds_nothing() -> None:
    """vLLM may send usage by itself."""
    assert parse_chunk({"usage": {}}) == Output()


def test_an_answer_that_lacks_a_log_probability_is_not_recorded() -> None:
    """Training on it would be training on a guess."""
    output = Output([1, 2], [-1.0], "stop", [{"version": "1", "start": 0, "end": 2}])
    with pytest.raises(ValueError, match="1 log-probabilities for 2 tokens"):
        output.sample("stop")
