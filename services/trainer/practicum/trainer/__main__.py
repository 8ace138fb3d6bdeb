"""Starts the trainer: `python -m practicum.trainer --help`."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from grpc import aio

from practicum.common.config import ServiceParser, run_service, server_config
from practicum.common.server import serve, split_address
from practicum.trainer.child import Neighbours
from practicum.trainer.runs import Runs
from practicum.trainer.service import TrainerService
from practicum.v1 import trainer_pb2_grpc


def main() -> None:
    """Parses the command line and runs."""
    parser = ServiceParser("trainer", description="Supervises training runs.", port=50054)
    parser.add_argument("--executor", default="127.0.0.1:50051", help="the executor (default: %(default)s)")
    parser.add_argument("--inference", default="127.0.0.1:50053", help="the inference proxy (default: %(default)s)")
    parser.add_argument("--state", type=Path, default=Path("trainer"), help="folder (default: %(default)s)")
    parser.add_argument("--max-runs", type=int, default=1, help="runs at once (default: %(default)s)")
    arguments = parser.parse_args()
    run_service(arguments, run(arguments))


async def run(arguments: argparse.Namespace) -> None:
    """Opens the runs, and serves."""
    for address in (arguments.executor, arguments.inference):
        split_address(address)
    neighbours = Neighbours(executor=arguments.executor, inference=arguments.inference)
    runs = Runs(Path(arguments.state), neighbours=neighbours, max_runs=int(arguments.max_runs))

    closing: list[asyncio.Task[None]] = []

    def register(server: aio.Server) -> None:
        trainer_pb2_grpc.add_TrainerServiceServicer_to_server(TrainerService(runs), server)

    def drain() -> None:
        closing.append(asyncio.create_task(runs.close()))  # So that watchers hear how their runs end.

    try:
        await runs.resume()
        await serve(server_config(arguments), services=["practicum.v1.TrainerService"], register=register, drain=drain)
    finally:
        await runs.close()


if __name__ == "__main__":
    main()
