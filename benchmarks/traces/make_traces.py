"""Makes the committed traces: `python benchmarks/traces/make_traces.py`. Same seeds, same traces.

Latencies of 32 rollouts, log-normal with a mean of 240 s. Their tail is ended at 450 s, as rollouts are by a deadline:
nobody's speed-up over one at a time can exceed the sum over the slowest, which with this mean is 14.66 at 524 s.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

ROLLOUTS = 32
MEAN_SECONDS = 240.0
SIGMA = 0.8
DEADLINE_SECONDS = 450.0
SEEDS = (1, 2)
FOLDER = Path(__file__).parent


def make_trace(seed: int) -> dict[str, Any]:
    """A trace with its recipe."""
    source = random.Random(seed)
    drawn = [source.lognormvariate(0.0, SIGMA) for _ in range(ROLLOUTS)]
    median = median_for_mean(drawn)
    return {
        "generator": "min(deadline_seconds, median_seconds * random.Random(seed).lognormvariate(0, sigma))",
        "seed": seed,
        "sigma": SIGMA,
        "median_seconds": round(median, 3),
        "mean_seconds": MEAN_SECONDS,
        "deadline_seconds": DEADLINE_SECONDS,
        "seconds": [round(each, 3) for each in cut(drawn, median)],
    }


def cut(drawn: list[float], median: float) -> list[float]:
    """What was drawn, in seconds, ended by the deadline."""
    return [min(median * each, DEADLINE_SECONDS) for each in drawn]


def median_for_mean(drawn: list[float]) -> float:
    """The median at which what was drawn, ended by the deadline, has the mean."""
    low, high = 0.0, 100 * MEAN_SECONDS
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(cut(drawn, middle)) < ROLLOUTS * MEAN_SECONDS else (low, middle)
    return high


def trace_file(seed: int) -> Path:
    """Where a trace is."""
    return FOLDER / f"heavy_tailed_{seed}.json"


def main() -> None:
    """Writes all."""
    for seed in SEEDS:
        trace_file(seed).write_text(json.dumps(make_trace(seed), indent=1) + "\n")


if __name__ == "__main__":
    main()
