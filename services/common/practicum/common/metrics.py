"""The door where Prometheus reads a service's figures: HTTP, in the service's own event loop.

So what is read stands still meanwhile, and nothing needs a lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import structlog
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

from practicum.common.errors import ConfigError

log = structlog.get_logger(__name__)

REQUEST_SECONDS = 10.0
MAX_REQUEST_BYTES = 16 * 1024
BAD_REQUEST = (asyncio.IncompleteReadError, asyncio.LimitOverrunError)

Source: TypeAlias = Callable[[], Awaitable[Iterable[Metric]]]
"""Reads figures, in the event loop."""


class Families(CollectorRegistry):
    """Figures that were read, in the form that encoders take."""

    def __init__(self, families: Sequence[Metric]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """These."""
        return self._families


class MetricsDoor:
    """Answers GET with what the sources tell, and what is known of any process."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._process = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._process)
        self._answers: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, which takes one request."""
        task = asyncio.current_task()
        assert task is not None
        self._answers.add(task)
        try:
            # The end of this task is nobody's: asyncio would write a traceback of its cancellation.
            with suppress(asyncio.CancelledError, TimeoutError, ConnectionError, *BAD_REQUEST):
                async with asyncio.timeout(REQUEST_SECONDS):
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                    writer.write(await self._response(head))
                    await writer.drain()
        finally:
            self._answers.discard(task)
            writer.close()

    def close(self) -> None:
        """Ends what is under way."""
        for task in self._answers:
            task.cancel()

    async def _response(self, head: str) -> bytes:
        request, *lines = head.split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        match request.split(" "):
            case ["GET", path, _] if path.partition("?")[0] == "/metrics":
                return await self._metrics(headers.get("accept", ""))
            case ["GET", *_]:
                return response("404 Not Found", "text/plain", b"the metrics are at /metrics\n")
        return response("405 Method Not Allowed", "text/plain", b"only GET is answered\n")

    async def _metrics(self, accept: str) -> bytes:
        encode, content_type = choose_encoder(accept)
        try:
            families = list(self._process.collect())
            for read in self._sources:
                families += await read()
            # A thousand nodes are a long text: it is written beside the loop.
            return response("200 OK", content_type, await asyncio.to_thread(encode, Families(families)))
        except Exception as error:
            log.exception("metrics_failed", error=type(error).__name__)
            return response("500 Internal Server Error", "text/plain", b"the service's log tells why\n")


def response(status: str, content_type: str, body: bytes) -> bytes:
    """One answer, after which the connection ends."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    return head.encode() + b"\r\n" + body


@asynccontextmanager
async def metrics_served(host: str, port: int, sources: Sequence[Source]) -> AsyncIterator[None]:
    """Serves /metrics for as long as the context lasts. Raises ConfigError when it can't."""
    door = MetricsDoor(sources)
    try:
        server = await asyncio.start_server(door.answer, host, port, limit=MAX_REQUEST_BYTES)
    except OSError as error:
        detail = f"can't serve metrics on {host}:{port}: the port is in use or the host is not ours"
        raise ConfigError(f"--metrics-address: {detail}") from error
    log.info("metrics_served", addresses=[":".join(map(str, s.getsockname()[:2])) for s in server.sockets])
    try:
        yield
    finally:
        server.close()
        door.close()
        await server.wait_closed()
