"""Starts the environment gateway: `python -m practicum.env_gateway --help`."""

from __future__ import annotations

import argparse
from pathlib import Path

from grpc import aio

from practicum.common.config import ServiceParser, run_service, server_config
from practicum.common.errors import ConfigError
from practicum.common.server import serve
from practicum.env_gateway.catalogue import Environment, load
from practicum.env_gateway.folders import sessions_folder
from practicum.env_gateway.gateway import Gateway
from practicum.env_gateway.processes import Launcher
from practicum.env_gateway.service import EnvGatewayService
from practicum.v1 import env_gateway_pb2_grpc


def main() -> None:
    """Parses the command line and runs."""
    parser = ServiceParser("env_gateway", description="Opens isolated sessions over MCP tool servers.", port=50052)
    parser.add_argument("--catalogue", type=Path, required=True, help="JSON file of servers and environments")
    parser.add_argument("--max-sessions", type=int, default=512, help="open at once (default: %(default)s)")
    arguments = parser.parse_args()
    run_service(arguments, run(arguments))


async def run(arguments: argparse.Namespace) -> None:
    """Reads the catalogue, and serves in a folder of its own."""
    environments = load(arguments.catalogue)
    if arguments.max_sessions < 1:
        raise ConfigError(f"--max-sessions {arguments.max_sessions}: give 1 or more")
    with sessions_folder() as folder:
        await serve_sessions(arguments, environments, folder)


async def serve_sessions(arguments: argparse.Namespace, environments: dict[str, Environment], folder: Path) -> None:
    """Serves; sessions have their files in `folder`."""
    async with Launcher(forked(environments)) as launcher:
        gateway = Gateway(environments, launcher, folder=folder, max_sessions=arguments.max_sessions)

        def register(server: aio.Server) -> None:
            # The stubs call every method abstract; the generated base answers UNIMPLEMENTED, as the protocol says.
            service = EnvGatewayService(gateway)  # type: ignore[abstract]
            env_gateway_pb2_grpc.add_EnvGatewayServiceServicer_to_server(service, server)

        async with gateway.sweeping():
            await serve(server_config(arguments), services=["practicum.v1.EnvGatewayService"], register=register)


def forked(environments: dict[str, Environment]) -> list[str]:
    """The functions that forked servers run."""
    return [server.fork for one in environments.values() for server in one.servers if server.fork]


if __name__ == "__main__":
    main()
