"""The executor's bar so far: kill -9 of nodes and of the executor loses nothing, again and again.

    python benchmarks/accept_executor.py        # three minutes; exits with 1 when a bar is missed

Each round starts an executor, a gateway and two nodes as processes, submits rollouts, and kills one of them with -9 in
the middle. What is counted is what a consumer was told that began anew after the last kill.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from figures import Figure, report

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from support.boxes import boxes_tasks, door, submit, trajectories
from support.services import Service, Services, services_in

ROLLOUTS = 64
SOLVER = ("--agent", "slow_solver=support.agents:slow_solver", "--slots", "8")


def main() -> int:
    """Kills each in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    figures = [f for victim in ("node", "executor") for f in rounds(victim, arguments.rounds)]
    return report(f"{arguments.rounds} rounds of {ROLLOUTS} rollouts each", figures, method="real processes, kill -9")


def rounds(victim: str, count: int) -> list[Figure]:
    """Lost and doubled rollouts over all rounds."""
    lost = doubled = again = 0
    for index in range(count):
        with tempfile.TemporaryDirectory() as folder, services_in(Path(folder)) as services:
            told, expected = one_round(services, victim, killed_after=8 * (index + 1))
        counts = Counter(t.rollout_id for t in told)
        lost += len(expected - counts.keys())
        doubled += sum(count - 1 for count in counts.values())
        again += sum(t.attempt > 1 for t in told)
    return [
        Figure(f"{victim} killed: rollouts lost", lost, at_most=0),
        Figure(f"{victim} killed: rollouts doubled", doubled, at_most=0),
        Figure(f"{victim} killed: rollouts begun again", again),
    ]


def one_round(services: Services, victim: str, *, killed_after: int):  # type: ignore[no-untyped-def]
    """Kills after so many trajectories. Returns all trajectories, and the ids that were accepted."""
    gateway = services.start("env_gateway", "--catalogue", "environments/catalogue.json")
    executor = services.executor()
    nodes = [services.node(name, executor, gateway, *SOLVER) for name in "ab"]
    with door(executor.address) as stub:
        expected = set(submit(stub, boxes_tasks(ROLLOUTS, "slow_solver", seconds=0.3)))
        trajectories(stub, killed_after, name="before")
    kill(nodes[0] if victim == "node" else executor, again=victim == "executor")
    with door(executor.address) as stub:
        return trajectories(stub, ROLLOUTS, name="after"), expected


def kill(service: Service, *, again: bool) -> None:
    """kill -9; and starts it again if asked."""
    service.kill()
    if again:
        service.launch()
        service.wait_serving()


if __name__ == "__main__":
    raise SystemExit(main())
