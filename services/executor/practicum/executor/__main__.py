"""Starts the executor: `python -m practicum.executor --help`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from grpc import aio

from practicum.common.server import AddressError, ServerConfig, serve
from practicum.executor.core import Executor
from practicum.executor.service import ExecutorService
from practicum.executor.store import SqlStore
from practicum.v1 import executor_pb2_grpc


def main() -> None:
    """Builds the store, the executor on it, and serves."""
    arguments = parse()
    store = SqlStore(arguments.database, durability=arguments.durability)
    executor = Executor(store)

    def register(server: aio.Server) -> None:
        # The stubs call every method abstract; the generated base answers UNIMPLEMENTED, as the protocol says.
        service = ExecutorService(executor)  # type: ignore[abstract]
        executor_pb2_grpc.add_ExecutorServiceServicer_to_server(service, server)

    config = ServerConfig(address=arguments.address, insecure=arguments.insecure)
    try:
        asyncio.run(serve(config, services=["practicum.v1.ExecutorService"], register=register))
    except AddressError as error:
        sys.exit(str(error))
    finally:
        store.close()


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="practicum.executor", description="Accepts tasks and keeps them durably.")
    parser.add_argument("--address", default="127.0.0.1:50051", help="where to serve (default: %(default)s)")
    parser.add_argument("--database", type=Path, default=Path("executor.db"), help="SQLite file (default: %(default)s)")
    parser.add_argument(
        "--durability",
        choices=("full", "process"),
        default="full",
        help="full: the disk has it; process: survives a kill -9 but not a power cut (default: %(default)s)",
    )
    parser.add_argument("--insecure", action="store_true", help="serve on an address that others can reach")
    return parser.parse_args()


if __name__ == "__main__":
    main()
