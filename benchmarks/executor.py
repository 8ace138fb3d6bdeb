"""Measures the executor: what a rollout costs, and how many go through in a second.

    python benchmarks/executor.py            # exits with 1 when a bar is missed

The executor is a process of its own on SQLite, two empty nodes are a process each, the caller and consumer is this
process: all on one machine. CPU is the executor's alone. Run it on a quiet machine; compare figures of the same run.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
from contextlib import AsyncExitStack
from functools import partial

from figures import Figure, report
from load.closed_loop import Run
from load.executor_client import executor_client
from load.executors import executor_and_nodes
from load.processes import cpu_seconds

DURABILITIES = ("full", "process")
IN_FLIGHT = {1: 200, 8: 800, 32: 3000, 256: 6000}
"""Rollouts in flight, and how many are run at that."""
CPU_BARS = {("full", 32): 0.25, ("full", 256): 0.10}
LATENCY_BAR_MS = 4.0
Runs = dict[tuple[str, int], list[Run]]


def main() -> int:
    """Measures, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--durability", choices=DURABILITIES, action="append", help="only this; may be repeated")
    parser.add_argument("--in-flight", type=int, nargs="+", default=list(IN_FLIGHT), choices=list(IN_FLIGHT))
    arguments = parser.parse_args()
    durabilities = arguments.durability or DURABILITIES
    runs = asyncio.run(throughput(durabilities, arguments.in_flight, arguments.repetitions))
    method = f"SQLite, 2 node processes, 1 caller process; medians of {arguments.repetitions} runs that alternate"
    return report("executor", throughput_figures(runs), method=method)


async def throughput(durabilities: list[str], in_flight: list[int], repetitions: int) -> Runs:
    """All runs: each durability at each depth, in turn, again and again."""
    runs: Runs = {(durability, depth): [] for durability in durabilities for depth in in_flight}
    async with AsyncExitStack() as stack:
        arms = {}
        for durability in durabilities:
            executor = stack.enter_context(executor_and_nodes(durability))
            client = await stack.enter_async_context(executor_client(executor.address))
            arms[durability] = (client, partial(cpu_seconds, executor.pid))
            await client.keep_in_flight(32, rollouts=500, cpu=arms[durability][1])  # Warm.
        for _ in range(repetitions):
            for (durability, depth), found in runs.items():
                client, cpu = arms[durability]
                found.append(await client.keep_in_flight(depth, rollouts=IN_FLIGHT[depth], cpu=cpu))
    return runs


def throughput_figures(runs: Runs) -> list[Figure]:
    """Medians beside their bars."""
    figures = []
    for (durability, depth), found in runs.items():
        what = f"{durability}, {depth} in flight"
        cpu = statistics.median(run.cpu_ms for run in found)
        figures.append(Figure(f"{what}: executor CPU a rollout", cpu, " ms", at_most=CPU_BARS.get((durability, depth))))
        figures.append(Figure(f"{what}: rollouts", statistics.median(run.rate for run in found), "/s"))
        if depth == 1:
            latency = statistics.median(run.p50_ms for run in found)
            bar = LATENCY_BAR_MS if durability == "process" else None
            figures.append(Figure(f"{what}: from submit to trajectory, p50", latency, " ms", at_most=bar))
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
