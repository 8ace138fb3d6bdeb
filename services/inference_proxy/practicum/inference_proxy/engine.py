"""One vLLM over HTTP: tokens in, tokens out, its weights, and what is known of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import aiohttp
import orjson
from yarl import URL

from practicum.inference_proxy.output import Output, parse_chunk, parse_response

GENERATE = "/inference/v1/generate"
# A busy machine may keep a healthy engine from answering for long; a dead one refuses the connection at once.
PROBE_TIMEOUT = aiohttp.ClientTimeout(total=30.0)
NO_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
JSON = {"Content-Type": "application/json"}
# vLLM resets the connection after it answered an internal error; the next request on it would fail with it.
JSON_ONCE = {**JSON, "Connection": "close"}
KEEPALIVE_SECONDS = 3.0
"""vLLM closes an idle connection after 5 s; a request that is sent just then would be lost."""


class EngineGone(Exception):
    """The engine can't be reached."""


class EngineFailed(Exception):
    """The engine answered that it failed within."""


class EngineRefused(Exception):
    """The engine refused the request; the text is its reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Engine:
    """An engine's address, what it serves, and what is in flight there."""

    def __init__(self, address: str, http: aiohttp.ClientSession) -> None:
        self.address = address.rstrip("/")
        self.model = ""
        self.max_tokens = 0
        self.serving = False
        self.why_not = "it was not reached yet"
        self.version: int | None = None
        """The policy version of its weights; None while that is not certain."""
        self.doubts = 0
        """How often its weights became uncertain: a generation that saw this rise can't tell its versions."""
        self.in_flight = 0
        self._http = http
        self._generate = URL(self.address + GENERATE)

    async def generate(self, request: Mapping[str, Any]) -> Output:
        """Samples, and answers once."""
        try:
            async with self._http.post(
                self._generate, data=orjson.dumps(request), headers=JSON, timeout=NO_TIMEOUT
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineGone(describe(error)) from error
        raise_for_status(response.status, body)
        return parse_response(orjson.loads(body))

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[Output, None]:
        """Samples, and answers with pieces as they come; the last has a finish reason."""
        data = orjson.dumps({**request, "stream": True})
        finished = False
        try:
            async with self._http.post(self._generate, data=data, headers=JSON, timeout=NO_TIMEOUT) as response:
                if response.status != 200:
                    raise_for_status(response.status, await response.read())
                async for line in response.content:
                    if line.startswith(b"data: {"):
                        piece = parse_piece(line[6:])
                        finished = finished or piece.finish_reason is not None
                        yield piece
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineGone(describe(error)) from error
        if not finished:
            raise EngineGone("the stream broke off")

    async def get(self, path: str) -> Any:
        """Asks the engine about itself; None for an empty answer."""
        return await self._control("GET", path, None, PROBE_TIMEOUT)

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Tells the engine to do something, for as long as that takes."""
        return await self._control("POST", path, body or {}, NO_TIMEOUT)

    async def _control(
        self, method: str, path: str, body: Mapping[str, Any] | None, timeout: aiohttp.ClientTimeout
    ) -> Any:
        data = None if body is None else orjson.dumps(body)
        try:
            async with self._http.request(
                method, self.address + path, data=data, headers=JSON_ONCE, timeout=timeout
            ) as response:
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise EngineGone(describe(error)) from error
        if response.status != 200:
            # A checkpoint that is refused is an internal error to vLLM too.
            raise EngineRefused(response.status, reason(answer))
        return orjson.loads(answer) if answer else None


def client_session() -> aiohttp.ClientSession:
    """Connections to an engine: as many as there are requests."""
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS)
    return aiohttp.ClientSession(connector=connector, auto_decompress=False, skip_auto_headers=["User-Agent"])


def parse_piece(data: bytes) -> Output:
    """A piece of a stream. vLLM reports a failure within a stream as a piece with an error."""
    body = orjson.loads(data)
    if "error" in body:
        raise EngineFailed(reason(data))
    return parse_chunk(body)


def raise_for_status(status: int, body: bytes) -> None:
    """Raises for an error: what the request did wrong, or what the engine did."""
    if 400 <= status < 500:
        raise EngineRefused(status, reason(body))
    if status != 200:
        raise EngineFailed(reason(body))


def reason(body: bytes) -> str:
    """An error's message, without how the call travelled inside of vLLM."""
    try:
        error = orjson.loads(body)["error"]
        message = str(error["message"] if isinstance(error, dict) else error)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message = body[:200].decode(errors="replace")
    return message.removeprefix("Call to collective_rpc method failed: ")


def describe(error: Exception) -> str:
    """What became of a request, and what to do about it."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{error}; start it, or mend --engine"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return "the connection broke off"
