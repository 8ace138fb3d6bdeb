"""Starts the executor: `python -m practicum.executor --help`."""

from __future__ import annotations

import argparse
from pathlib import Path

from grpc import aio

from practicum.common.background import background
from practicum.common.config import ServiceParser, run_service, server_config
from practicum.common.server import serve
from practicum.executor.consumers import Consumers
from practicum.executor.core import MAX_BACKLOG, Executor
from practicum.executor.dispatch import Dispatcher
from practicum.executor.dispatch_service import DispatchService
from practicum.executor.service import ExecutorService
from practicum.executor.store import SqlStore
from practicum.v1 import dispatch_pb2_grpc, executor_pb2_grpc

SERVICES = ["practicum.v1.ExecutorService", "practicum.v1.DispatchService"]


def main() -> None:
    """Parses the command line and runs."""
    parser = ServiceParser("executor", description="Accepts tasks and keeps them durably.", port=50051)
    parser.add_argument("--database", type=Path, default=Path("executor.db"), help="SQLite file (default: %(default)s)")
    parser.add_argument(
        "--durability",
        choices=("full", "process"),
        default="full",
        help="full: the disk has it; process: survives a kill -9 but not a power cut (default: %(default)s)",
    )
    parser.add_argument(
        "--lease-seconds",
        type=float,
        default=30.0,
        help="a node that is silent for so long has lost its rollouts (default: %(default)s)",
    )
    parser.add_argument(
        "--max-backlog",
        type=int,
        default=MAX_BACKLOG,
        help="rollouts that may wait or run; more are refused until some end (default: %(default)s)",
    )
    arguments = parser.parse_args()
    run_service(arguments, run(arguments))


async def run(arguments: argparse.Namespace) -> None:
    """Builds the store, the executor on it, its two doors, and serves."""
    store = SqlStore(arguments.database, durability=arguments.durability)
    executor = Executor(store, lease_seconds=arguments.lease_seconds, max_backlog=arguments.max_backlog)
    dispatcher, consumers = Dispatcher(executor), Consumers(executor)

    def register(server: aio.Server) -> None:
        # The stubs call every method abstract; the generated base answers UNIMPLEMENTED, as the protocol says.
        service = ExecutorService(executor, dispatcher, consumers)  # type: ignore[abstract]
        executor_pb2_grpc.add_ExecutorServiceServicer_to_server(service, server)
        nodes = DispatchService(dispatcher, lease_seconds=arguments.lease_seconds)
        dispatch_pb2_grpc.add_DispatchServiceServicer_to_server(nodes, server)

    def drain() -> None:
        dispatcher.end_streams()
        consumers.end_streams()

    try:
        async with executor.running(), background(dispatcher.run()):
            await serve(server_config(arguments), services=SERVICES, register=register, drain=drain)
    finally:
        store.close()


if __name__ == "__main__":
    main()
