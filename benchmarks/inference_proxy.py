"""Measures the inference proxy in front of a real vLLM: what a call costs, and how much of vLLM's speed is left.

    python benchmarks/inference_proxy.py        # about a minute and a half; exits with 1 when a bar is missed

vLLM is started here, on CPUs, with a model of 1 M parameters; it is compared with itself in the same run.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import orjson
import psutil
from figures import Figure, report
from transformers import AutoTokenizer

from practicum.environments.boxes.model import TOOLS
from practicum.inference_proxy.engine import client_session
from practicum.inference_proxy.model import load_model
from practicum.v1 import inference_pb2

# The same engine and models as in the tests.
sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.proxy_process import Proxy, close_session, open_session, publish, running_proxy
from support.services import unused_address
from support.tiny_checkpoints import make_player, make_talker
from support.vllm_engine import VllmEngine

IN_FLIGHT = 64
CALLS = 512
ROUNDS = 5
TOKENS = (32, 96)
"""Lengths vary, as those of answers do: else all would end in the same step, and the engine wait for all callers."""
UPDATES = 10
TOOLS_JSON = json.dumps(TOOLS)


@dataclass(frozen=True, slots=True)
class Setup:
    """What is measured."""

    proxy: Proxy
    engine: VllmEngine
    http: aiohttp.ClientSession
    root: Path
    prompts: list[list[int]]


def main() -> int:
    """Starts vLLM and the proxy, measures, prints."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "weights"
        root.mkdir()
        make_player(root / "player")
        end_ids = tuple(load_model(root / "player").end_ids)
        for seed in range(2):
            make_talker(root / "player", root / f"talker-{seed}", seed=seed, end_ids=end_ids)
        engine = VllmEngine(root / "player", int(unused_address().rpartition(":")[2]), Path(folder) / "log")
        engine.start()
        try:
            engine.wait_until_up()
            figures = asyncio.run(measure(engine, root))
        finally:
            engine.stop()
    method = "both arms in the same minute on the same engine, medians of pairs; CPU as the kernel counts it"
    return report("inference proxy beside vLLM alone", figures, method=method)


async def measure(engine: VllmEngine, root: Path) -> list[Figure]:
    """All figures, in one run."""
    async with (
        client_session() as http,
        running_proxy(engine.address, model=root / "player", root=root) as proxy,
    ):
        setup = Setup(proxy, engine, http, root, prompts(root / "player"))
        short = await cpu_of_turns(setup, max_tokens=40)
        await publish(proxy, "talker-0")
        return [
            Figure("proxy CPU, a turn of a tool session (about 15 tokens)", short, " ms", at_most=1.5),
            Figure(
                "proxy CPU, a chat of 100 tokens with log-probabilities", await cpu_of_chats(setup), " ms", at_most=1.5
            ),
            *await throughput(setup),
            *await updates(setup),
        ]


def question(index: int) -> str:
    """A different user's turn each."""
    return f"Open box {index}. What is in the end of the chain?"


def tokens_of(index: int) -> int:
    """How many tokens a call samples."""
    low, high = TOKENS
    return low + index * 37 % (high - low + 1)


def prompts(model: Path) -> list[list[int]]:
    """The questions as tokens."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    options: dict[str, Any] = {"tools": TOOLS, "add_generation_prompt": True, "return_dict": False}
    return [
        tokenizer.apply_chat_template([{"role": "user", "content": question(index)}], **options)
        for index in range(CALLS)
    ]


async def side_by_side(work: Iterable[Awaitable[int]], *, in_flight: int) -> int:
    """Runs all, so many at a time; answers with the sum."""
    waiting, total = iter(work), 0

    async def worker() -> None:
        nonlocal total
        for call in waiting:
            found = await call  # In two steps: others add meanwhile.
            total += found

    await asyncio.gather(*(worker() for _ in range(in_flight)))
    return total


def cpu_seconds(proxy: Proxy) -> float:
    """CPU that the proxy used so far."""
    times = psutil.Process(proxy.process.pid).cpu_times()
    return float(times.user + times.system)


async def chat(setup: Setup, session: str, messages: list[Any], max_tokens: int) -> inference_pb2.ChatResponse:
    """One turn."""
    request = inference_pb2.ChatRequest(
        session_id=session,
        attempt=1,
        messages=messages,
        tools_json=TOOLS_JSON,
        sampling=inference_pb2.Sampling(max_tokens=max_tokens),
    )
    responses = [response async for response in setup.proxy.stub.Chat(request)]
    return responses[-1]


async def cpu_of_turns(setup: Setup, *, max_tokens: int) -> float:
    """Milliseconds a turn of games with three turns, opening and closing their sessions included."""
    turns = 3

    async def game(index: int) -> int:
        session, messages = f"game-{index}", [inference_pb2.ChatMessage(role="user", content=question(17))]
        await open_session(setup.proxy, session)
        for _ in range(turns):
            answer = (await chat(setup, session, messages, max_tokens)).message
            messages += [answer, inference_pb2.ChatMessage(role="tool", content="box 204")]
        await close_session(setup.proxy, session)
        return 1

    before = cpu_seconds(setup.proxy)
    games = await side_by_side((game(index) for index in range(200)), in_flight=16)
    return 1000 * (cpu_seconds(setup.proxy) - before) / (turns * games)


async def cpu_of_chats(setup: Setup) -> float:
    """Milliseconds a recorded chat of 100 tokens."""
    await asyncio.gather(*(open_session(setup.proxy, f"long-{index}") for index in range(CALLS)))

    async def one(index: int) -> int:
        message = inference_pb2.ChatMessage(role="user", content=question(index))
        return (await chat(setup, f"long-{index}", [message], 100)).usage.sampled_tokens

    before = cpu_seconds(setup.proxy)
    tokens = await side_by_side((one(index) for index in range(CALLS)), in_flight=16)
    assert tokens == 100 * CALLS
    return 1000 * (cpu_seconds(setup.proxy) - before) / CALLS


async def throughput(setup: Setup) -> list[Figure]:
    """Tokens a second through the proxy, as a part of what vLLM gives when it is asked directly in the same minute."""

    async def direct(ids: list[int], index: int) -> int:
        params = {"max_tokens": tokens_of(index), "logprobs": 0, "detokenize": False, "temperature": 1.0}
        body = orjson.dumps({"token_ids": ids, "sampling_params": params})
        async with setup.http.post(
            f"{setup.engine.address}/inference/v1/generate", data=body, headers={"Content-Type": "application/json"}
        ) as response:
            return len(orjson.loads(await response.read())["choices"][0]["token_ids"])

    async def proxied(_: list[int], index: int) -> int:
        message = inference_pb2.ChatMessage(role="user", content=question(index))
        return (await chat(setup, f"load-{index}", [message], tokens_of(index))).usage.sampled_tokens

    async def rate(call: Callable[[list[int], int], Awaitable[int]]) -> float:
        started = time.monotonic()
        work = (call(ids, index) for index, ids in enumerate(setup.prompts))
        tokens = await side_by_side(work, in_flight=IN_FLIGHT)
        return tokens / (time.monotonic() - started)

    await asyncio.gather(*(open_session(setup.proxy, f"load-{index}") for index in range(CALLS)))
    await rate(direct)
    pairs = [(await rate(direct), await rate(proxied)) for _ in range(ROUNDS)]
    straight, through = (statistics.median(values) for values in zip(*pairs, strict=True))
    print(f"tokens/s at {IN_FLIGHT} in flight: {straight:.0f} from vLLM, {through:.0f} through the proxy")
    what = f"throughput at {IN_FLIGHT} in flight, part of vLLM's own"
    return [Figure(what, 100 * through / straight, "%", at_least=95)]


async def updates(setup: Setup) -> list[Figure]:
    """From the request to the first token of the new version, beside vLLM's own calls one after the other."""
    own, through = [], []
    for index in range(UPDATES):
        own.append(await timed(lambda index=index: own_update(setup, f"talker-{index % 2}")))
        through.append(await timed(lambda index=index: proxied_update(setup, f"talker-{(index + 1) % 2}")))
    print(f"update to first token: {1000 * statistics.median(own):.0f} ms with vLLM's own calls, ", end="")
    print(f"{1000 * statistics.median(through):.0f} ms through the proxy")
    what = "update until the first token, times vLLM's own"
    return [Figure(what, statistics.median(through) / statistics.median(own), "×", at_most=2)]


async def timed(work: Callable[[], Awaitable[None]]) -> float:
    """Seconds it took."""
    started = time.monotonic()
    await work()
    return time.monotonic() - started


async def own_update(setup: Setup, name: str) -> None:
    """What somebody without a proxy would do. The stamp stays, so that the proxy's versions stay true."""
    stamp = (await control(setup, "GET", "/weight_info"))["weight_version"]
    await control(setup, "POST", "/pause?mode=keep&clear_cache=true")
    await control(setup, "POST", "/start_weight_update")
    await control(setup, "POST", "/update_weights", {"update_info": {"path": str(setup.root / name)}})
    await control(setup, "POST", "/finish_weight_update", {"weight_version": stamp})
    await control(setup, "POST", "/resume")
    params = {"max_tokens": 1, "logprobs": 0, "detokenize": False}
    await control(setup, "POST", "/inference/v1/generate", {"token_ids": [1, 2, 3], "sampling_params": params})


async def control(setup: Setup, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """One of vLLM's own calls."""
    async with setup.http.request(method, setup.engine.address + path, json=body) as response:
        response.raise_for_status()
        return await response.json()


async def proxied_update(setup: Setup, name: str) -> None:
    """The same through the proxy."""
    version = await publish(setup.proxy, name)
    request = inference_pb2.GenerateRequest(
        prompt_token_ids=np.array([1, 2, 3], "<i4").tobytes(), sampling=inference_pb2.Sampling(max_tokens=1)
    )
    [response] = [response async for response in setup.proxy.stub.Generate(request)]
    assert [span.version for span in response.version_spans] == [version]


if __name__ == "__main__":
    sys.exit(main())
