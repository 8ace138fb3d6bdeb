"""Serves one gRPC service as a process: health, reflection, channelz, and a shutdown in phases."""

from __future__ import annotations

import asyncio
import ipaddress
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

import structlog
from grpc import aio
from grpc_channelz.v1 import channelz
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from practicum.common.call_meter import CallMeter
from practicum.common.errors import ConfigError
from practicum.common.interceptor import ErrorInterceptor
from practicum.common.metrics import Source, metrics_served

log = structlog.get_logger(__name__)

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Without it a server cuts off clients whose keepalive pings come every 10 s after 50 s ("Too many pings").
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    # So that streams end whose peer is stopped in its tracks or cut off: gRPC would wait for two hours.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    # Two processes on one port would share its connections silently; the second must fail instead.
    ("grpc.so_reuseport", 0),
]


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Where to serve calls, and metrics if anywhere, and how long running calls may take to end at shutdown."""

    address: str
    grace_seconds: float = 5.0
    insecure: bool = False
    metrics_address: str | None = None


async def serve(
    config: ServerConfig,
    *,
    services: Sequence[str],
    register: Callable[[aio.Server], None],
    drain: Callable[[], None] = lambda: None,
    until: Callable[[], Awaitable[object]] | None = None,
    ready: bool = True,
    sources: Sequence[Source] = (),
) -> None:
    """Serves until SIGTERM or SIGINT, or `until` returns: health says NOT_SERVING, `drain` ends long streams, calls get
    their grace, then it ends.

    Unless it is `ready`, health says so of the services, but not of the process, which is well. `sources` are read for
    metrics, beside what is known of all services.
    """
    for address in filter(None, (config.address, config.metrics_address)):
        refuse_open_address(address, insecure=config.insecure)
    async with AsyncExitStack() as stack:
        interceptors: list[aio.ServerInterceptor] = [ErrorInterceptor()]
        if config.metrics_address:
            interceptors.append(meter := CallMeter())
            await stack.enter_async_context(
                metrics_served(*split_address(config.metrics_address), [meter.read, *sources])
            )
        server = aio.server(interceptors=interceptors, options=OPTIONS)
        register(server)
        await run(server, config, services=services, drain=drain, until=until or wait_for_signal, ready=ready)


async def run(
    server: aio.Server,
    config: ServerConfig,
    *,
    services: Sequence[str],
    drain: Callable[[], None],
    until: Callable[[], Awaitable[object]],
    ready: bool,
) -> None:
    """The server's life, from its port to its end."""
    checker = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(checker, server)
    channelz.add_channelz_servicer(server)
    names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME, "grpc.channelz.v1.Channelz")
    reflection.enable_server_reflection(names, server)
    port = bind(server, config.address)
    await server.start()
    of_services = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
    for name in services:
        await checker.set(name, of_services)
    await checker.set("", health_pb2.HealthCheckResponse.SERVING)
    log.info("served" if ready else "standing_by", address=config.address, port=port, services=list(services))
    await until()
    log.info("draining", grace_seconds=config.grace_seconds)
    await checker.enter_graceful_shutdown()
    drain()
    await server.stop(config.grace_seconds)
    log.info("stopped")


def refuse_open_address(address: str, *, insecure: bool) -> None:
    """Refuses an address that others can reach, since this release has no credentials to guard it."""
    host = split_address(address)[0]
    if insecure or host == "localhost":
        return
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise ConfigError(
            f"{address} is not a loopback address and calls are not authenticated: "
            "serve on 127.0.0.1, or pass --insecure if the network is trusted"
        )


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`."""
    host, _, port = address.rpartition(":")
    # gRPC would take 99999 modulo 65536 without a word.
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"{address!r} is not an address: give host:port, such as 127.0.0.1:50051")
    return host.strip("[]"), int(port)


def bind(server: aio.Server, address: str) -> int:
    """Binds the address, or says which one is taken."""
    try:
        return server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(f"can't listen on {address}: the port is in use or the host is not ours") from error


async def wait_for_signal() -> None:
    """Returns at the first SIGTERM or SIGINT; a second one, of either kind, ends the process at once. So does the
    first when this was cancelled."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        stopped.set()
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        await stopped.wait()
    except asyncio.CancelledError:
        for number in numbers:
            loop.remove_signal_handler(number)
        raise
