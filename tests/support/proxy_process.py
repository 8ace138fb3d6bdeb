"""The inference proxy as a process, and a relay that sees what goes between it and its engine."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from google.rpc import error_details_pb2
from grpc import StatusCode, aio
from grpc_status import rpc_status
from support.services import unused_address

from practicum.common.channels import connect
from practicum.v1 import inference_pb2, inference_pb2_grpc

WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that serves."""

    stub: inference_pb2_grpc.InferenceServiceAsyncStub
    process: asyncio.subprocess.Process
    address: str


@asynccontextmanager
async def running_proxy(engine: str, *more: str, model: Path, root: Path, wait: bool = True) -> AsyncIterator[Proxy]:
    """Starts a proxy; `wait`: until its engine serves."""
    address = unused_address()
    flags = [*more, "--address", address, "--engine", engine, "--model", str(model), "--weights-root", str(root)]
    command = [sys.executable, "-m", "practicum.inference_proxy", "--exit-with-parent", str(os.getpid()), *flags]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with connect(address) as channel:
            await asyncio.wait_for(channel.channel_ready(), WAIT_SECONDS)
            proxy = Proxy(inference_pb2_grpc.InferenceServiceStub(channel), process, address)  # type: ignore[arg-type]
            if wait:
                await until_serving(proxy)
            yield proxy
    finally:
        if process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), WAIT_SECONDS)


async def until_serving(proxy: Proxy, *, serving: bool = True) -> inference_pb2.EngineInfo:
    """Waits until the proxy's engine takes work, or until it does not."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        [engine] = (await proxy.stub.ListEngines(inference_pb2.ListEnginesRequest())).engines
        if engine.serving is serving:
            return engine
        await asyncio.sleep(0.05)
    raise TimeoutError(f"serving is not {serving}: {engine}")


async def open_session(proxy: Proxy, session_id: str, attempt: int = 1) -> None:
    """Opens a session."""
    request = inference_pb2.InferenceServiceOpenSessionRequest(
        session_id=session_id, attempt=attempt, agent_id="player"
    )
    await proxy.stub.OpenSession(request)


async def close_session(proxy: Proxy, session_id: str, attempt: int = 1) -> Any:
    """Closes a session; answers with its graph."""
    request = inference_pb2.InferenceServiceCloseSessionRequest(session_id=session_id, attempt=attempt)
    return (await proxy.stub.CloseSession(request)).graph


async def publish(proxy: Proxy, path: str, **options: Any) -> int:
    """Publishes a checkpoint as the next version."""
    served = await proxy.stub.GetPolicyVersion(inference_pb2.GetPolicyVersionRequest())
    request = inference_pb2.UpdateWeightsRequest(version=served.version + 1, path=path, **options)
    return (await proxy.stub.UpdateWeights(request)).version


async def failure_of(call: Any) -> tuple[StatusCode, str, str]:
    """Code, reason and text of a call that must fail."""
    try:
        if hasattr(call, "__aiter__"):
            _ = [response async for response in call]
        else:
            await call
    except aio.AioRpcError as error:
        status = rpc_status.from_call(error)
        info = error_details_pb2.ErrorInfo()
        if status is not None:
            status.details[0].Unpack(info)
        return error.code(), info.reason, error.details() or ""
    raise AssertionError("it did not fail")


@dataclass(slots=True)
class Relay:
    """Passes everything on to the engine, and notes what was generated from what."""

    target: str
    address: str = ""
    generated: list[tuple[list[int], list[int]]] = field(default_factory=list)
    """Ids that the engine read, and ids that it sampled."""
    hold: str = ""
    """Requests with this path are held until `released`."""
    held: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        body = await request.read()
        if request.path == self.hold:
            self.held.set()
            await self.released.wait()
        async with (
            aiohttp.ClientSession() as http,
            http.request(
                request.method,
                self.target + request.path_qs,
                data=body or None,
                headers={"Content-Type": "application/json"},
            ) as answer,
        ):
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await response.prepare(request)
            whole = b""
            async for data in answer.content.iter_any():
                whole += data
                await response.write(data)
        if request.path == "/inference/v1/generate" and answer.status == 200:
            self.generated.append((json.loads(body)["token_ids"], sampled_ids(whole)))
        return response


def sampled_ids(answer: bytes) -> list[int]:
    """The ids in an answer of the engine, streamed or not."""
    lines = [line.removeprefix(b"data: ") for line in answer.splitlines() if line.strip(b" \n")]
    bodies = [json.loads(line) for line in lines if line != b"[DONE]"]
    return [token for body in bodies for token in body["choices"][0]["token_ids"]]


@asynccontextmanager
async def running_relay(target: str) -> AsyncIterator[Relay]:
    """A relay to the engine."""
    relay = Relay(target)
    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{path:.*}", relay.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    host, port = unused_address().split(":")
    await web.TCPSite(runner, host, int(port)).start()
    relay.address = f"http://{host}:{port}"
    try:
        yield relay
    finally:
        relay.released.set()
        await runner.cleanup()
