"""Starts the trainer: `python -m practicum.trainer --help`."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from grpc import aio

from practicum.common.config import ServiceParser, run_service, server_config
from practicum.common.errors import ConfigError
from practicum.common.server import serve, split_address
from practicum.trainer.child import STOP_SECONDS, Neighbours
from practicum.trainer.runs import Runs
from practicum.trainer.service import TrainerService
from practicum.v1 import trainer_pb2_grpc


def main() -> None:
    """Parses the command line and runs."""
    parser = ServiceParser("trainer", description="Supervises training runs.", port=50054)
    parser.add_argument(
        "--executor", default="127.0.0.1:50051", help="its address, or those of several: a:1,b:2 (default: %(default)s)"
    )
    parser.add_argument("--inference", default="127.0.0.1:50053", help="its address (default: %(default)s)")
    parser.add_argument("--state", type=Path, default=Path("trainer"), help="folder (default: %(default)s)")
    parser.add_argument("--max-runs", type=int, default=1, help="runs at once (default: %(default)s)")
    arguments = parser.parse_args()
    run_service(arguments, run(arguments))


async def run(arguments: argparse.Namespace) -> None:
    """Opens the runs, and serves."""
    for address in (*arguments.executor.split(","), arguments.inference):
        split_address(address.strip())
    neighbours = Neighbours(executor=arguments.executor, inference=arguments.inference)
    if arguments.max_runs < 1:
        raise ConfigError(f"--max-runs {arguments.max_runs}: give 1 or more")
    with own(arguments.state):
        await serve_runs(arguments, Runs(arguments.state, neighbours=neighbours, max_runs=arguments.max_runs))


@contextmanager
def own(folder: Path) -> Iterator[None]:
    """The state folder is this process's alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise ConfigError(f"--state {folder} is not a folder that can be written: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"--state {folder} is used by another trainer: give each its own folder") from error
        yield


async def serve_runs(arguments: argparse.Namespace, runs: Runs) -> None:
    """Goes on with what was running, and serves."""
    closing: list[asyncio.Task[None]] = []

    def register(server: aio.Server) -> None:
        trainer_pb2_grpc.add_TrainerServiceServicer_to_server(TrainerService(runs), server)

    def drain() -> None:
        closing.append(asyncio.create_task(runs.close()))  # So that watchers hear how their runs end.

    try:
        await runs.resume()
        # As long as a run may take to keep its last checkpoint: whoever watches it hears that it stopped.
        config = replace(server_config(arguments), grace_seconds=STOP_SECONDS)
        await serve(config, services=["practicum.v1.TrainerService"], register=register, drain=drain)
    finally:
        await runs.close()


if __name__ == "__main__":
    main()
