"""Starts the executor: `python -m practicum.executor --help`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from grpc import aio
from sqlalchemy.engine import Connection

from practicum.common.background import background
from practicum.common.config import run_service, server_config
from practicum.common.server import serve
from practicum.executor.core import Executor, Settings
from practicum.executor.delivery.consumers import Consumers
from practicum.executor.delivery.retention import Keep, Retention
from practicum.executor.dispatching.dispatcher import Dispatcher
from practicum.executor.dispatching.service import DispatchService
from practicum.executor.leadership.leading import leading
from practicum.executor.leadership.standby import stand_by
from practicum.executor.observing.metrics import ExecutorMetrics
from practicum.executor.options import executor_parser, keep_of, lease_of, settings_of
from practicum.executor.service import ExecutorService
from practicum.executor.store.sql import SqlStore
from practicum.v1 import dispatch_pb2_grpc, executor_pb2_grpc

SERVICES = ["practicum.v1.ExecutorService", "practicum.v1.DispatchService"]


def main() -> None:
    """Parses the command line and runs."""
    arguments = executor_parser().parse_args()
    run_service(arguments, run(arguments), spans_of="executor")


async def run(arguments: argparse.Namespace) -> None:
    """Serves; where there may be other executors, once this one leads."""
    lease, chosen = lease_of(arguments), (settings_of(arguments), keep_of(arguments))
    if lease is None:
        await lead(arguments, *chosen)
        return
    leadership = await stand_by(server_config(arguments), lease, SERVICES)
    if leadership is not None:
        async with leading(leadership):
            await lead(arguments, *chosen, fence=leadership.fence, epoch=leadership.epoch)
    lease.close()


async def lead(
    arguments: argparse.Namespace,
    settings: Settings,
    keep: Keep,
    *,
    fence: Callable[[Connection], None] | None = None,
    epoch: int | None = None,
) -> None:
    """Builds the store, the executor on it, its two doors, and serves."""
    store = SqlStore(arguments.database, durability=arguments.durability, fence=fence)
    executor = Executor(store, settings)
    dispatcher, consumers = Dispatcher(executor), Consumers(executor)
    retention = Retention(executor, keep, consumers.connected)
    sources = [ExecutorMetrics(executor, consumers, epoch=epoch).read]

    def register(server: aio.Server) -> None:
        service = ExecutorService(executor, dispatcher, consumers)
        executor_pb2_grpc.add_ExecutorServiceServicer_to_server(service, server)
        nodes = DispatchService(dispatcher, lease_seconds=settings.lease_seconds)
        dispatch_pb2_grpc.add_DispatchServiceServicer_to_server(nodes, server)

    def drain() -> None:
        dispatcher.end_streams()
        consumers.end_streams()

    try:
        async with executor.running(), background(dispatcher.run()), background(retention.run()):
            await serve(server_config(arguments), services=SERVICES, register=register, drain=drain, sources=sources)
    finally:
        store.close()


if __name__ == "__main__":
    main()
