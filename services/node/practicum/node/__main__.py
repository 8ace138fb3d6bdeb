"""Starts a node: `python -m practicum.node --help`."""

from __future__ import annotations

import argparse
import socket

from structlog.contextvars import bind_contextvars

from practicum.common.background import background
from practicum.common.channels import connect
from practicum.common.config import ServiceParser, run_service, server_config
from practicum.common.errors import ConfigError
from practicum.common.executors import Executors
from practicum.common.server import serve
from practicum.node.agents import load_agents
from practicum.node.connection import Connection, Introduction
from practicum.node.rollout import Services
from practicum.node.worker import Worker


def main() -> None:
    """Parses the command line and runs."""
    parser = ServiceParser("node", description="Runs agents: takes rollouts, brings back trajectories.", port=0)
    parser.add_argument(
        "--executor", default="127.0.0.1:50051", help="its address, or those of several: a:1,b:2 (default: %(default)s)"
    )
    parser.add_argument("--gateway", default="127.0.0.1:50052", help="its address (default: %(default)s)")
    parser.add_argument("--inference", default="127.0.0.1:50053", help="its address (default: %(default)s)")
    parser.add_argument("--node-id", default=socket.gethostname(), help="stable and unique (default: %(default)s)")
    parser.add_argument("--slots", type=int, default=16, help="rollouts at once (default: %(default)s)")
    parser.add_argument(
        "--agent",
        action="append",
        default=[],
        metavar="KIND=MODULE:FUNCTION",
        help="an agent to run beside the built-in tool_agent; may be repeated",
    )
    parser.add_argument("--label", action="append", default=[], metavar="KEY=VALUE", help="may be repeated")
    parser.add_argument(
        "--drain-seconds",
        type=float,
        default=10.0,
        help="at shutdown, how long rollouts may go on before others take them (default: %(default)s)",
    )
    arguments = parser.parse_args()
    run_service(arguments, run(arguments), spans_of="node")


async def run(arguments: argparse.Namespace) -> None:
    """Builds the worker and its connection, and serves health."""
    bind_contextvars(node_id=arguments.node_id)
    agents = load_agents(arguments.agent)
    introduction = Introduction(arguments.node_id, arguments.slots, sorted(agents), labels_of(arguments.label))
    async with (
        Executors(arguments.executor) as executors,
        connect(arguments.gateway) as gateway,
        connect(arguments.inference) as inference,
    ):
        worker = Worker(introduction, agents, Services.over(gateway, inference))
        connection = worker.connection = Connection(executors, introduction, worker.outbox, worker)
        async with background(connection.run()):
            await serve(server_config(arguments), services=[], register=lambda server: None, drain=connection.drain)
            await worker.finish(arguments.drain_seconds)
            await worker.outbox.emptied(timeout=2.0)


def labels_of(options: list[str]) -> dict[str, str]:
    """Labels of options like `gpu=a100`."""
    labels = dict(option.partition("=")[::2] for option in options)
    if not all(labels) or not all("=" in option for option in options):
        raise ConfigError("--label: give KEY=VALUE, such as hardware=a100")
    return labels


if __name__ == "__main__":
    main()
