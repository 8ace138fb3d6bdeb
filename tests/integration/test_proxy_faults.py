"""What becomes of calls when the engine is not there, dies, or comes back as it was at first."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from support.proxy_process import (
    Proxy,
    Relay,
    close_session,
    failure_of,
    open_session,
    publish,
    running_proxy,
    running_relay,
    until_serving,
)
from support.rescoring import Scorer, sequences
from support.services import unused_address
from support.tiny_checkpoints import make_talker
from support.vllm_engine import VllmEngine

from practicum.common.channels import connect
from practicum.v1 import inference_pb2

END_IDS = (0, 1, 2)


@pytest.fixture
async def relay(engine: VllmEngine) -> AsyncIterator[Relay]:
    async with running_relay(engine.address) as relay:
        yield relay


@pytest.fixture(scope="module")
def talker(player: Path, weights_root: Path) -> str:
    """A checkpoint whose answers don't end."""
    return make_talker(player, weights_root / "endless", seed=9, end_ids=END_IDS).name


def generation(session_id: str, *, max_tokens: int = 400) -> inference_pb2.GenerateRequest:
    """Asks for tokens."""
    return inference_pb2.GenerateRequest(
        session_id=session_id,
        attempt=1,
        prompt_token_ids=np.array([3, 20, 40, 60], "<i4").tobytes(),
        sampling=inference_pb2.Sampling(max_tokens=max_tokens),
    )


async def test_a_proxy_without_an_engine_serves_and_says_what_is_missing(player: Path, weights_root: Path) -> None:
    """The process is healthy; calls that need the engine name it and what to do."""
    nowhere = f"http://{unused_address()}"
    async with running_proxy(nowhere, model=player, root=weights_root, wait=False) as proxy:
        async with connect(proxy.address) as channel:
            health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        for call in (
            open_session(proxy, "early"),
            publish(proxy, "player"),
            proxy.stub.Generate(inference_pb2.GenerateRequest(prompt_token_ids=b"\1\0\0\0")),
        ):
            code, reason, text = await failure_of(call)
            assert (code, reason) == (StatusCode.UNAVAILABLE, "ENGINE_UNAVAILABLE")
            assert nowhere in text
            assert "start it, or mend --engine" in text
        loads = await proxy.stub.GetLoads(inference_pb2.GetLoadsRequest())
        assert (loads.in_flight, loads.open_sessions) == (0, 0)


async def test_an_engine_that_lacks_the_update_calls_is_refused_with_its_flags(
    player: Path, weights_root: Path
) -> None:
    """A vLLM that was started without what is needed is told apart from one that is down."""

    async def handle(request: web.Request) -> web.Response:
        models = {"data": [{"id": "tiny", "max_model_len": 64}]}
        return web.json_response(models) if request.path == "/v1/models" else web.Response()

    application = web.Application()
    application.router.add_get("/health", handle)
    application.router.add_get("/v1/models", handle)
    runner = web.AppRunner(application)
    await runner.setup()
    host, port = unused_address().split(":")
    await web.TCPSite(runner, host, int(port)).start()
    try:
        async with running_proxy(f"http://{host}:{port}", model=player, root=weights_root, wait=False) as proxy:
            await until_failure_says(proxy, "VLLM_SERVER_DEV_MODE=1")
    finally:
        await runner.cleanup()


async def until_failure_says(proxy: Proxy, wanted: str) -> None:
    """Waits until generations fail with this text."""
    async with asyncio.timeout(30):
        while True:
            call = proxy.stub.Generate(inference_pb2.GenerateRequest(prompt_token_ids=b"\1\0\0\0"))
            if wanted in (await failure_of(call))[2]:
                return
            await asyncio.sleep(0.05)


@pytest.mark.vllm
async def test_a_killed_engine_fails_its_calls_and_serves_the_current_version_when_it_returns(
    engine: VllmEngine, player: Path, weights_root: Path, talker: str
) -> None:
    """Sessions survive it, and no token comes from the weights that it was started with."""
    async with running_proxy(engine.address, model=player, root=weights_root) as proxy:
        version = await publish(proxy, talker)
        await open_session(proxy, "survivor")
        first = [response async for response in proxy.stub.Generate(generation("survivor", max_tokens=20))]
        cut = proxy.stub.Generate(generation("survivor", max_tokens=2000))
        await anext(aiter(cut))
        engine.kill()
        engine.start()
        code, reason, text = await failure_of(cut)
        assert (code, reason) == (StatusCode.UNAVAILABLE, "ENGINE_UNAVAILABLE")
        assert engine.address in text
        code, reason, _ = await failure_of(proxy.stub.Generate(generation("survivor")))
        assert (code, reason) == (StatusCode.UNAVAILABLE, "ENGINE_UNAVAILABLE")
        await asyncio.to_thread(engine.wait_until_up)
        assert (await until_serving(proxy)).policy_version == version
        again = [response async for response in proxy.stub.Generate(generation("survivor", max_tokens=20))]
        assert [span.version for span in again[-1].version_spans] == [version]
        paths = sequences(await close_session(proxy, "survivor"))
        assert [sum(path.trained) for path in paths] == [20, 20]
        assert sum(len(response.token_ids) for response in first) == 80
        for path in paths:
            scored = Scorer(player).logprobs(weights_root / talker, path.ids)
            assert max(abs(a - b) for a, b, s in zip(scored, path.logprobs, path.sampled, strict=True) if s) <= 1e-4


@pytest.mark.vllm
async def test_a_proxy_that_starts_anew_learns_the_version_from_the_engine(
    engine: VllmEngine, player: Path, weights_root: Path, talker: str
) -> None:
    """Versions never fall, whoever restarts."""
    async with running_proxy(engine.address, model=player, root=weights_root) as proxy:
        version = await publish(proxy, talker)
    async with running_proxy(engine.address, model=player, root=weights_root) as proxy:
        served = await proxy.stub.GetPolicyVersion(inference_pb2.GetPolicyVersionRequest())
        assert (served.version, served.path) == (version, talker)


@pytest.mark.vllm
async def test_a_proxy_told_to_stop_during_an_update_leaves_the_engine_running(
    relay: Relay, engine: VllmEngine, player: Path, weights_root: Path, talker: str
) -> None:
    """SIGTERM while the engine is paused: the update comes to its end, and the engine goes on."""
    async with running_proxy(relay.address, model=player, root=weights_root) as proxy:
        update, version = await held_update(proxy, relay, "/update_weights", talker)
        proxy.process.send_signal(signal.SIGTERM)
        relay.released.set()
        assert await asyncio.wait_for(proxy.process.wait(), 20) == 0
        await asyncio.gather(update, return_exceptions=True)
    assert await asked(engine, "/is_paused") == {"is_paused": False}
    assert await asked(engine, "/weight_info") == {"weight_version": f"{version} {talker}"}


@pytest.mark.vllm
async def test_a_proxy_killed_during_an_update_is_made_good_by_the_next(
    relay: Relay, engine: VllmEngine, player: Path, weights_root: Path, talker: str
) -> None:
    """kill -9 between swap and stamp: the next proxy loads what the stamp says, and lets the engine go on."""
    async with running_proxy(relay.address, model=player, root=weights_root) as proxy:
        await publish(proxy, "player")
        update, version = await held_update(proxy, relay, "/finish_weight_update", talker)
        proxy.process.kill()
        await proxy.process.wait()
        await asyncio.gather(update, return_exceptions=True)
    assert await asked(engine, "/is_paused") == {"is_paused": True}
    async with running_proxy(engine.address, model=player, root=weights_root) as proxy:
        assert await asked(engine, "/is_paused") == {"is_paused": False}
        served = await proxy.stub.GetPolicyVersion(inference_pb2.GetPolicyVersionRequest())
        assert (served.version, served.path) == (version - 1, "player")
        await open_session(proxy, "after")
        _ = [response async for response in proxy.stub.Generate(generation("after", max_tokens=12))]
        [path] = sequences(await close_session(proxy, "after"))
        scored = Scorer(player).logprobs(player, path.ids)
        assert max(abs(a - b) for a, b, s in zip(scored, path.logprobs, path.sampled, strict=True) if s) <= 1e-4


@pytest.mark.vllm
async def test_an_update_that_fails_half_way_stops_calls_until_the_old_weights_are_back(
    relay: Relay, player: Path, weights_root: Path, talker: str
) -> None:
    """A generation that was frozen over it is not answered with tokens of uncertain weights."""
    async with running_proxy(relay.address, model=player, root=weights_root) as proxy:
        await publish(proxy, talker)
        await open_session(proxy, "frozen")
        frozen = proxy.stub.Generate(generation("frozen", max_tokens=1500))
        await anext(aiter(frozen))
        update, version = await held_update(proxy, relay, "/update_weights", "player", timeout={"nanos": 300_000_000})
        code, reason, _ = await failure_of(update)
        assert (code, reason) == (StatusCode.DEADLINE_EXCEEDED, "UPDATE_TOO_SLOW")
        code, reason, text = await failure_of(frozen)
        assert (code, reason) == (StatusCode.UNAVAILABLE, "ENGINE_UNAVAILABLE")
        assert "update of its weights failed" in text
        relay.hold = ""
        relay.released.set()
        assert (await until_serving(proxy)).policy_version == version - 1
        _ = [response async for response in proxy.stub.Generate(generation("frozen", max_tokens=12))]
        [path] = sequences(await close_session(proxy, "frozen"))
        scored = Scorer(player).logprobs(weights_root / talker, path.ids)
        assert max(abs(a - b) for a, b, s in zip(scored, path.logprobs, path.sampled, strict=True) if s) <= 1e-4


async def held_update(
    proxy: Proxy, relay: Relay, path: str, checkpoint: str, **options: Any
) -> tuple[asyncio.Task[int], int]:
    """An update that stands still before the engine hears of `path`, and its version."""
    served = await proxy.stub.GetPolicyVersion(inference_pb2.GetPolicyVersionRequest())
    relay.hold = path
    update = asyncio.create_task(publish(proxy, checkpoint, **options))
    await asyncio.wait_for(relay.held.wait(), 20)
    return update, served.version + 1


async def asked(engine: VllmEngine, path: str) -> Any:
    """What the engine itself answers."""
    async with aiohttp.ClientSession() as http, http.get(engine.address + path) as response:
        return await response.json()


@pytest.mark.vllm
async def test_a_call_that_is_given_up_ends_in_the_engine_too(
    engine: VllmEngine, player: Path, weights_root: Path, talker: str
) -> None:
    """Nothing stays in flight, and nothing is recorded of it."""
    async with running_proxy(engine.address, "--max-in-flight", "1", model=player, root=weights_root) as proxy:
        await publish(proxy, talker)
        await open_session(proxy, "given-up")
        call = proxy.stub.Generate(generation("given-up", max_tokens=1500))
        await anext(aiter(call))
        code, reason, _ = await failure_of(proxy.stub.Generate(generation("given-up")))
        assert (code, reason) == (StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS")
        call.cancel()
        async with asyncio.timeout(10):
            while await in_flight(proxy) or await running_requests(engine):  # noqa: ASYNC110 — there is no event
                await asyncio.sleep(0.02)
        assert not (await close_session(proxy, "given-up")).nodes


async def in_flight(proxy: Proxy) -> int:
    """How many generations the proxy waits for."""
    return (await proxy.stub.GetLoads(inference_pb2.GetLoadsRequest())).in_flight


async def running_requests(engine: VllmEngine) -> float:
    """How many generations the engine works on, by its own figures."""
    async with aiohttp.ClientSession() as http, http.get(f"{engine.address}/metrics") as response:
        lines = (await response.text()).splitlines()
    [line] = [line for line in lines if line.startswith("vllm:num_requests_running")]
    return float(line.rpartition(" ")[2])


@pytest.mark.vllm
async def test_calls_name_what_is_wrong_with_them(engine: VllmEngine, player: Path, weights_root: Path) -> None:
    """Unknown sessions, older attempts, unfit prompts: each has its status and reason."""
    invalid, missing = StatusCode.INVALID_ARGUMENT, StatusCode.NOT_FOUND
    user = [inference_pb2.ChatMessage(role="user", content="hello")]
    async with running_proxy(engine.address, model=player, root=weights_root) as proxy:
        await open_session(proxy, "one", attempt=2)

        def generate(ids: list[int], **options: Any) -> Any:
            fields = {"session_id": "one", "attempt": 2, "prompt_token_ids": np.array(ids, "<i4").tobytes(), **options}
            return proxy.stub.Generate(inference_pb2.GenerateRequest(**fields))

        def chat(**options: Any) -> Any:
            fields = {"session_id": "one", "attempt": 2, "messages": user, **options}
            return proxy.stub.Chat(inference_pb2.ChatRequest(**fields))

        for call, code, reason in (
            (generate([1], session_id="two"), missing, "SESSION_UNKNOWN"),
            (generate([1], attempt=1), StatusCode.FAILED_PRECONDITION, "STALE_ATTEMPT"),
            (generate([1], attempt=3), missing, "SESSION_UNKNOWN"),
            (generate([1], session_id="", model="other"), missing, "MODEL_UNKNOWN"),
            (generate([1] * 2048), invalid, "PROMPT_TOO_LONG"),
            (generate([1, 512]), invalid, "TOKEN_OUT_OF_VOCABULARY"),
            (generate([-1]), invalid, "TOKEN_OUT_OF_VOCABULARY"),
            (generate([]), invalid, "INVALID_FIELD"),
            (generate([1], prompt_logprobs=True), invalid, "INVALID_FIELD"),
            (generate([1], sampling=inference_pb2.Sampling(top_p=2)), invalid, "INVALID_FIELD"),
            (chat(messages=[]), invalid, "INVALID_FIELD"),
            (chat(messages=[inference_pb2.ChatMessage(role="wizard")]), invalid, "INVALID_FIELD"),
            (chat(tools_json="{}"), invalid, "INVALID_FIELD"),
            (chat(tools_json="["), invalid, "INVALID_FIELD"),
            (chat(session_id=""), invalid, "INVALID_FIELD"),
            (chat(attempt=0), invalid, "INVALID_FIELD"),
            (open_session(proxy, "one", attempt=1), StatusCode.FAILED_PRECONDITION, "STALE_ATTEMPT"),
            (proxy.stub.DrainEngine(inference_pb2.DrainEngineRequest()), StatusCode.UNIMPLEMENTED, ""),
        ):
            assert (await failure_of(call))[:2] == (code, reason)
