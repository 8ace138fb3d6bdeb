"""Starts the executor: `python -m practicum.executor --help`."""

from __future__ import annotations

import argparse
from pathlib import Path

from grpc import aio

from practicum.common.config import ServiceParser, run_service, server_config
from practicum.common.server import serve
from practicum.executor.core import Executor
from practicum.executor.service import ExecutorService
from practicum.executor.store import SqlStore
from practicum.v1 import executor_pb2_grpc


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
    arguments = parser.parse_args()
    run_service(arguments, run(arguments))


async def run(arguments: argparse.Namespace) -> None:
    """Builds the store, the executor on it, and serves."""
    store = SqlStore(arguments.database, durability=arguments.durability)
    executor = Executor(store)

    def register(server: aio.Server) -> None:
        # The stubs call every method abstract; the generated base answers UNIMPLEMENTED, as the protocol says.
        service = ExecutorService(executor)  # type: ignore[abstract]
        executor_pb2_grpc.add_ExecutorServiceServicer_to_server(service, server)

    try:
        await serve(server_config(arguments), services=["practicum.v1.ExecutorService"], register=register)
    finally:
        store.close()


if __name__ == "__main__":
    main()
