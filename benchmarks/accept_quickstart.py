"""The quickstart's bar: three seeds, and the controls that show that it is practice that does it.

    python benchmarks/accept_quickstart.py      # half an hour on two quiet cores; exits with 1 when a bar is missed

Each seed runs `practicum quickstart` from nothing, every service as a process of its own. The last run has a learning
rate of 0. Shares are of 256 held-out tasks.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from figures import Figure, report

PRACTICUM = Path(sys.executable).with_name("practicum")
SEEDS = (1, 2, 3)
MINUTES = 8.0


def main() -> int:
    """Runs all, and prints one table each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--steps", type=int, default=80, help="of reinforcement learning (default: %(default)s)")
    parser.add_argument("--base-port", type=int, default=50051)
    parser.add_argument("--no-controls", action="store_true", help="leave the run without learning out")
    arguments = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in arguments.seeds:
            results = quickstart(Path(folder) / f"seed-{seed}", arguments, "--seed", str(seed))
            missed |= report(f"quickstart, seed {seed}", figures(results), method=METHOD)
            missed |= report("held-out tasks", [leaks(Path(folder) / f"seed-{seed}")], method="by their contents")
        if not arguments.no_controls:
            results = quickstart(Path(folder) / "no-learning", arguments, "--seed", "1", "--learning-rate", "0")
            missed |= report("control: learning rate 0", control(results), method=METHOD)
    return missed


METHOD = (
    "one run from nothing; CPU-minutes are of all child processes; overlap and staleness as the trainer counts them"
)


def quickstart(folder: Path, arguments: argparse.Namespace, *flags: str) -> dict[str, Any]:
    """One run; its results."""
    command = [str(PRACTICUM), "quickstart", "--folder", str(folder), "--steps", str(arguments.steps)]
    subprocess.run([*command, "--base-port", str(arguments.base_port), *flags], check=True)
    results: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return results


def figures(results: dict[str, Any]) -> list[Figure]:
    """A run's figures beside their bars."""
    return [
        percent("greedy before", results["greedy_before"]),
        percent("greedy after SFT", results["greedy_after_sft"], at_most=50),
        percent("sampled after SFT", results["sampled_after_sft"], at_least=5, at_most=45),
        percent("greedy after RL", results["greedy_after_rl"], at_least=95),
        percent("sampled after RL", results["sampled_after_rl"], at_least=88),
        percent("sampled after RL, tools hidden", results["sampled_without_tools"], at_most=5),
        percent("training time that overlaps rollouts", results["overlap_share"], at_least=50),
        percent("trained tokens of staleness 1 and more", results["stale_share"], at_least=20),
        percent("trainer idle", results["trainer_idle_share"]),
        Figure("wall time", results["seconds"] / 60, " min", at_most=MINUTES),
        Figure("CPU time", results["cpu_minutes"], " min"),
    ]


def control(results: dict[str, Any]) -> list[Figure]:
    """Without learning nothing is gained."""
    return [
        percent("greedy after RL", results["greedy_after_rl"], at_most=50),
        percent("sampled after RL", results["sampled_after_rl"], at_most=50),
    ]


def leaks(folder: Path) -> Figure:
    """Held-out tasks whose contents are among those that were trained on."""
    trained = contents(folder / "tasks" / "sft.jsonl") | contents(folder / "tasks" / "rl.jsonl")
    return Figure(
        "held-out tasks seen in training", len(contents(folder / "tasks" / "heldout.jsonl") & trained), at_most=0
    )


def contents(path: Path) -> set[str]:
    """What the boxes of a file's tasks hold."""
    return {json.loads(line)["environment"]["parametersJson"] for line in path.read_text().splitlines()}


def percent(what: str, share: float, **bars: float) -> Figure:
    """A share in percent."""
    return Figure(what, 100 * share, "%", **bars)


if __name__ == "__main__":
    raise SystemExit(main())
