"""What a rollout costs the executor, and how many go through in a second, at several depths of a closed loop."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from figures import Figure

from load.closed_loop import Run
from load.executor_client import executor_client
from load.executors import executor_and_nodes
from load.payload import EMPTY, MESSAGES, TOKENS, WHOLE, task
from load.processes import cpu_seconds

ROLLOUTS = {(EMPTY, 1): 200, (EMPTY, 8): 800, (EMPTY, 32): 3000, (EMPTY, 256): 6000, (WHOLE, 32): 400}
"""How many are run, by agent and rollouts in flight."""
CPU_BARS = {("full", EMPTY, 32): 0.25, ("full", EMPTY, 256): 0.10, ("full", WHOLE, 32): 1.5}
LATENCY_BARS = {"process": 4.0}
Runs = dict[tuple[str, str, int], list[Run]]


async def throughput_figures(
    durabilities: Sequence[str], loads: Sequence[tuple[str, int]], repetitions: int
) -> list[Figure]:
    """Medians beside their bars."""
    runs = await measure(durabilities, loads, repetitions)
    return [
        figure for (durability, kind, depth), found in runs.items() for figure in of(durability, kind, depth, found)
    ]


async def measure(durabilities: Sequence[str], loads: Sequence[tuple[str, int]], repetitions: int) -> Runs:
    """All runs: each load with each durability, in turn, again and again."""
    runs: Runs = {(durability, *load): [] for load in loads for durability in durabilities}
    async with AsyncExitStack() as stack:
        arms = {}
        for durability in durabilities:
            executor = stack.enter_context(executor_and_nodes(durability))
            client = await stack.enter_async_context(executor_client(executor.address))
            arms[durability] = client, partial(cpu_seconds, executor.pid)
            await client.keep_in_flight(32, rollouts=500, cpu=lambda: 0.0)  # Warm.
        for _ in range(repetitions):
            for (durability, kind, depth), found in runs.items():
                client, cpu = arms[durability]
                rollouts = ROLLOUTS[kind, depth]
                found.append(
                    await client.keep_in_flight(depth, rollouts=rollouts, cpu=cpu, make=partial(task, kind=kind))
                )
    return runs


def of(durability: str, kind: str, depth: int, runs: Sequence[Run]) -> list[Figure]:
    """The figures of one load."""
    what = f"{durability}, {depth} in flight"
    if kind == WHOLE:
        what += f", {MESSAGES} messages and {TOKENS:,} tokens"
    cpu = statistics.median(run.cpu_ms for run in runs)
    figures = [
        Figure(f"{what}: CPU a rollout", cpu, " ms", at_most=CPU_BARS.get((durability, kind, depth))),
        Figure(f"{what}: rollouts", statistics.median(run.rate for run in runs), "/s"),
    ]
    if depth == 1:
        latency = statistics.median(run.p50_ms for run in runs)
        figures.append(Figure(f"{what}: latency, p50", latency, " ms", at_most=LATENCY_BARS.get(durability)))
    return figures
