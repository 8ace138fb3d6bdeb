"""Starts the executor: `python -m practicum.executor --help`."""

from __future__ import annotations

import argparse
import math

from grpc import aio

from practicum.common.background import background
from practicum.common.config import ServiceParser, run_service, server_config
from practicum.common.server import serve
from practicum.executor.consumers import Consumers
from practicum.executor.core import Executor, Settings
from practicum.executor.dispatch import Dispatcher
from practicum.executor.dispatch_service import DispatchService
from practicum.executor.intake import MAX_BACKLOG
from practicum.executor.service import ExecutorService
from practicum.executor.store import SqlStore
from practicum.v1 import dispatch_pb2_grpc, executor_pb2_grpc

SERVICES = ["practicum.v1.ExecutorService", "practicum.v1.DispatchService"]


def main() -> None:
    """Parses the command line and runs."""
    parser = ServiceParser("executor", description="Accepts tasks and keeps them durably.", port=50051)
    parser.add_argument(
        "--database",
        default="executor.db",
        help="an SQLite file, or postgresql://user@host/name (default: %(default)s)",
    )
    parser.add_argument(
        "--durability",
        choices=("full", "process"),
        default="full",
        help="of SQLite. full: the disk has it; process: survives a kill -9 but not a power cut (default: %(default)s)",
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
    parser.add_argument(
        "--queue",
        action="append",
        default=[],
        type=parse_queue,
        metavar="NAME[:WEIGHT[:LIMIT]]",
        help="a queue's share within a priority (1 unless given), and how many rollouts may wait or run in it",
    )
    arguments = parser.parse_args()
    run_service(arguments, run(arguments))


async def run(arguments: argparse.Namespace) -> None:
    """Builds the store, the executor on it, its two doors, and serves."""
    store = SqlStore(arguments.database, durability=arguments.durability)
    executor = Executor(store, settings_of(arguments))
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


def settings_of(arguments: argparse.Namespace) -> Settings:
    """What the flags choose."""
    return Settings(
        lease_seconds=arguments.lease_seconds,
        max_backlog=arguments.max_backlog,
        queue_weights={name: weight for name, weight, _ in arguments.queue},
        queue_limits={name: limit for name, _, limit in arguments.queue if limit},
    )


def parse_queue(text: str) -> tuple[str, float, int]:
    """Name, weight and limit of a queue; the limit is 0 when there is none."""
    name, _, rest = text.partition(":")
    weight, _, limit = rest.partition(":")
    parsed = (name, float(weight or 1), int(limit or 0))
    if not name or not 0 < parsed[1] < math.inf or parsed[2] < 0:
        raise ValueError(text)
    return parsed


if __name__ == "__main__":
    main()
