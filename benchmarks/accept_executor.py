"""The executor under kill -9: nothing is lost, nothing doubled, and a node that was cut off acts no more.

    python benchmarks/accept_executor.py                       # 22 minutes; exits with 1 when a bar is missed
    python benchmarks/accept_executor.py --minutes 1 --rollouts 200

Real processes. For so many minutes rollouts are submitted while nodes, executors and PostgreSQL are killed with -9 at
random and started again, first on SQLite, then on PostgreSQL with a standby. A consumer begins anew every few
trajectories, acks what it had, and drops repeats by rollout id.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from figures import Figure, report

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.chaos import Outcome, run_chaos
from support.cut_off import cut_off
from support.postgres import running_postgres
from support.services import services_in

CUT_SECONDS = 60.0


def main() -> int:
    """Both stores, then the node that is cut off."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for each store (default: %(default)s)")
    parser.add_argument("--rollouts", type=int, default=1_000, help="for each store (default: %(default)s)")
    parser.add_argument("--cut-seconds", type=float, default=CUT_SECONDS, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000), help="of what is killed when")
    arguments = parser.parse_args()
    figures = [
        *chaos_figures("SQLite", arguments, postgres=False),
        *chaos_figures("PostgreSQL with a standby", arguments, postgres=True),
        *cut_off_figures(arguments.cut_seconds),
    ]
    method = f"real processes, kill -9 about every 4 s for {arguments.minutes:g} minutes each, seed {arguments.seed}"
    return report("the executor under kill -9", figures, method=method)


def chaos_figures(store: str, arguments: argparse.Namespace, *, postgres: bool) -> Sequence[Figure]:
    """One store."""
    with tempfile.TemporaryDirectory() as folder, services_in(Path(folder)) as services:
        options = {
            "rollouts": arguments.rollouts,
            "seconds": arguments.minutes * 60,
            "seed": arguments.seed,
            "pause_seconds": 4.0,
        }
        if not postgres:
            return figures_of(store, run_chaos(services, None, **options))
        with running_postgres() as server:
            return figures_of(store, run_chaos(services, server, **options))


def figures_of(store: str, outcome: Outcome) -> list[Figure]:
    """What was lost and doubled, and what was done to it."""
    repeats = sum(outcome.told.values()) - len(outcome.told)
    kills = [Figure(f"{store}: kill -9 of a {kind}", count) for kind, count in sorted(outcome.kills.items())]
    return [
        *kills,
        Figure(f"{store}: rollouts", len(outcome.expected)),
        Figure(f"{store}: rollouts without a stored trajectory", outcome.lost, at_most=0),
        Figure(f"{store}: stored trajectories beyond one for each", outcome.doubled, at_most=0),
        Figure(f"{store}: rollouts that the consumer never heard of", outcome.untold, at_most=0),
        Figure(f"{store}: repeats that the consumer dropped", repeats),
        Figure(f"{store}: rollouts begun again", outcome.begun_again),
    ]


def cut_off_figures(seconds: float) -> list[Figure]:
    """A node whose packets to the executor are dropped for a while."""
    with tempfile.TemporaryDirectory() as folder, services_in(Path(folder)) as services:
        result = cut_off(services, Path(folder), seconds=seconds)
    return [
        Figure(f"cut off for {seconds:g} s: actions before another attempt began", len(result.first) - result.late),
        Figure(f"cut off for {seconds:g} s: actions after that", result.late, at_most=0),
        Figure(f"cut off for {seconds:g} s: stored trajectories", len(result.stored), at_least=1, at_most=1),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
