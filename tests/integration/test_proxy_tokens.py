"""What the proxy records of a real vLLM is what that read and sampled, and scores the same in plain transformers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.proxy_process import (
    Proxy,
    Relay,
    close_session,
    open_session,
    publish,
    running_proxy,
    running_relay,
)
from support.rescoring import Scorer, path_to, sequences
from support.tiny_checkpoints import FOUND, QUESTION
from support.vllm_engine import VllmEngine
from transformers import AutoTokenizer

from practicum.environments.boxes.model import TOOLS
from practicum.v1 import inference_pb2, trajectory_pb2

pytestmark = pytest.mark.vllm
TOLERANCE = 1e-4
TOOLS_JSON = json.dumps(TOOLS)


@pytest.fixture
async def relay(engine: VllmEngine) -> AsyncIterator[Relay]:
    """Sees what goes between proxy and engine."""
    async with running_relay(engine.address) as relay:
        yield relay


@pytest.fixture
async def proxy(relay: Relay, player: Path, weights_root: Path) -> AsyncIterator[Proxy]:
    """A proxy in front of the relay, whose engine serves the player."""
    async with running_proxy(relay.address, model=player, root=weights_root) as proxy:
        await publish(proxy, "player")
        yield proxy


async def chat(proxy: Proxy, session_id: str, messages: list[inference_pb2.ChatMessage], **options: Any) -> Any:
    """Has the model continue a conversation; answers with all responses."""
    stream = options.pop("stream_text", False)
    sampling = inference_pb2.Sampling(**{"max_tokens": 40, "temperature": 0.0, **options})
    request = inference_pb2.ChatRequest(
        session_id=session_id,
        attempt=1,
        messages=messages,
        tools_json=TOOLS_JSON,
        sampling=sampling,
        stream_text=stream,
    )
    return [response async for response in proxy.stub.Chat(request)]


def user(text: str) -> inference_pb2.ChatMessage:
    """What a user says."""
    return inference_pb2.ChatMessage(role="user", content=text)


def result(text: str, call: inference_pb2.ChatMessage) -> inference_pb2.ChatMessage:
    """What came of a message's first call."""
    return inference_pb2.ChatMessage(role="tool", content=text, tool_call_id=call.tool_calls[0].call_id)


async def play(proxy: Proxy, session_id: str) -> list[inference_pb2.ChatMessage]:
    """A whole game with two calls; the second turn is streamed."""
    messages = [user(QUESTION)]
    for found in FOUND:
        last = (await chat(proxy, session_id, messages, stream_text=found is FOUND[1]))[-1]
        assert last.finish_reason == "tool_calls", last
        assert not last.branched
        messages += [last.message, result(found, last.message)]
    last = (await chat(proxy, session_id, messages))[-1]
    assert (last.message.content, last.finish_reason) == ("<answer>53</answer>", "stop")
    return [*messages, last.message]


async def test_a_session_of_turns_and_branches_rescores_token_for_token(
    proxy: Proxy, relay: Relay, player: Path
) -> None:
    """Every recorded sequence: the engine's ids, each sampled token trained once, log-probabilities within 1e-4."""
    await open_session(proxy, "game")
    messages = await play(proxy, "game")
    again = (await chat(proxy, "game", messages[:-1], temperature=1.0))[-1]
    cut = (await chat(proxy, "game", [*messages, user("And?")], max_tokens=3))[-1]
    stopped = (await chat(proxy, "game", [*messages, user("And?"), cut.message, user("Box 17?")], stop=["name"]))[-1]
    edited = [messages[0], messages[1], result("box 31", messages[1])]
    branch = (await chat(proxy, "game", edited, temperature=1.0))[-1]
    prompt = np.array([5, 300, 17, 44, 260], "<i4").tobytes()
    generate = inference_pb2.GenerateRequest(session_id="game", attempt=1, prompt_token_ids=prompt)
    generated = [response async for response in proxy.stub.Generate(generate)]
    assert [again.branched, cut.branched, stopped.branched, branch.branched] == [False, False, False, True]
    assert cut.finish_reason == "length"
    assert "name" not in stopped.message.content

    graph = await close_session(proxy, "game")
    assert_recorded_what_the_engine_did(graph, relay)
    assert b"".join(response.token_ids for response in generated) == graph.nodes[-1].token_ids
    assert_trained_once_and_rescored(graph, player)


def assert_recorded_what_the_engine_did(graph: trajectory_pb2.TokenGraph, relay: Relay) -> None:
    """Each call's path is what the engine read, and its node what the engine sampled; there is nothing else."""
    recorded = []
    for index, node in enumerate(graph.nodes):
        if node.role == trajectory_pb2.TOKEN_ROLE_SAMPLED:
            path = [ids(graph.nodes[step]) for step in path_to(graph, index)]
            recorded.append(([token for part in path[:-1] for token in part], path[-1]))
    assert recorded == relay.generated


def ids(node: trajectory_pb2.TokenNode) -> list[int]:
    """A node's tokens."""
    return list(np.frombuffer(node.token_ids, "<i4").tolist())


def assert_trained_once_and_rescored(graph: trajectory_pb2.TokenGraph, checkpoint: Path) -> None:
    """The masks cover each sampled token once; every recorded log-probability is that of plain transformers."""
    paths = sequences(graph)
    total = sum(len(ids(node)) for node in graph.nodes if node.role == trajectory_pb2.TOKEN_ROLE_SAMPLED)
    assert len(paths) >= 4
    assert sum(sum(path.trained) for path in paths) == total
    scorer = Scorer(checkpoint)
    for path in paths:
        scored = scorer.logprobs(checkpoint, path.ids)
        errors = [abs(a - b) for a, b, s in zip(scored, path.logprobs, path.sampled, strict=True) if s]
        assert max(errors) <= TOLERANCE


async def test_what_is_rendered_is_what_transformers_renders(proxy: Proxy, relay: Relay, player: Path) -> None:
    """A game's tokens are those of the whole conversation under transformers' own template code."""
    await open_session(proxy, "rendered")
    messages = await play(proxy, "rendered")
    await close_session(proxy, "rendered")
    read, sampled = relay.generated[-1]
    whole = AutoTokenizer.from_pretrained(player).apply_chat_template(
        [as_openai(message) for message in messages], tools=TOOLS, tokenize=True, return_dict=False
    )
    assert [*read, *sampled] == whole[: len(read) + len(sampled)]


def as_openai(message: inference_pb2.ChatMessage) -> dict[str, Any]:
    """A message as chat templates take it."""
    calls = [
        {"type": "function", "function": {"name": call.name, "arguments": json.loads(call.arguments_json)}}
        for call in message.tool_calls
    ]
    return {"role": message.role, "content": message.content, **({"tool_calls": calls} if calls else {})}


async def test_streamed_text_is_the_answers_text(proxy: Proxy) -> None:
    """Deltas add up to the content, and the markup of calls is never shown."""
    await open_session(proxy, "deltas")
    messages = await play(proxy, "deltas")
    responses = await chat(proxy, "deltas", messages[:-1], stream_text=True)
    assert "".join(response.text_delta for response in responses) == responses[-1].message.content != ""
    responses = await chat(proxy, "deltas", messages[:1], stream_text=True)
    assert responses[-1].message.tool_calls[0].name == "box__open"
    assert not any(response.text_delta for response in responses)


async def test_prompt_logprobs_are_those_of_transformers(proxy: Proxy, player: Path) -> None:
    """One for each token of the prompt, the first 0; nothing is recorded."""
    prompt = list(range(100, 140))
    request = inference_pb2.GenerateRequest(
        prompt_token_ids=np.array(prompt, "<i4").tobytes(),
        sampling=inference_pb2.Sampling(max_tokens=1),
        prompt_logprobs=True,
    )
    [response] = [response async for response in proxy.stub.Generate(request)]
    found = np.frombuffer(response.prompt_logprobs, "<f4")
    assert np.abs(found - Scorer(player).logprobs(player, prompt)).max() <= TOLERANCE
