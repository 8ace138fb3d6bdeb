"""Measures the executor: what a rollout costs, what a backlog costs, the way back after a kill -9, and idle nodes.

    python benchmarks/executor.py            # some minutes; exits with 1 when a bar is missed
    python benchmarks/executor.py --only empty --in-flight 32 256 --repetitions 3

The executor is a process of its own on SQLite, two empty nodes are a process each, the caller and consumer is this
process: all on one machine. CPU is the executor's alone. Run it on a quiet machine; compare figures of the same run.
"""

from __future__ import annotations

import argparse
import asyncio

from figures import Figure
from load.backlog import backlog_figures
from load.idle import idle_figures
from load.payload import EMPTY, WHOLE
from load.results import benchmark_parser, publish
from load.throughput import ROLLOUTS, throughput_figures

DURABILITIES = ("full", "process")
PARTS = ("empty", "whole", "backlog", "idle")


def main() -> int:
    """Measures, writes, prints."""
    parser = benchmark_parser("executor", __doc__)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="only these parts")
    parser.add_argument("--durability", choices=DURABILITIES, nargs="+", default=DURABILITIES)
    depths = [depth for kind, depth in ROLLOUTS if kind == EMPTY]
    parser.add_argument("--in-flight", type=int, nargs="+", default=depths, choices=depths, help="of empty rollouts")
    parser.add_argument("--idle-seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments))
    method = f"SQLite; executor, 2 nodes, caller: a process each; medians of {arguments.repetitions} runs, arms in turn"
    return publish("executor", figures, method=method, file=arguments.json)


async def measure(arguments: argparse.Namespace) -> list[Figure]:
    """The parts that are wanted."""
    figures = []
    loads = [(EMPTY, depth) for depth in arguments.in_flight] if "empty" in arguments.only else []
    loads += [(WHOLE, 32)] if "whole" in arguments.only else []
    if loads:
        figures += await throughput_figures(arguments.durability, loads, arguments.repetitions)
    if "backlog" in arguments.only:
        figures += await backlog_figures(arguments.repetitions)
    if "idle" in arguments.only:
        figures += await idle_figures(arguments.idle_seconds)
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
