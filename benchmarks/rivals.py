"""Our executor beside its rivals: the same rollouts, the same machine, the same run, in turn.

    python benchmarks/rivals.py            # five minutes; the first time it installs the rivals

An empty rollout has an instruction of 200 bytes and a result of 300 bytes; as many are kept in flight as are named.
Each arm is started for its turn and ended after it, so that no other is there meanwhile: a server, two nodes and a
caller, on this machine. What a rival does and leaves out is told in its adapter, in benchmarks/rivals/. Rivals are
installed by this command from exact pins into environments of their own, in .venv-rivals/.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from figures import Figure
from load.processes import BENCHMARKS, children
from load.results import benchmark_parser, publish
from rivals.environments import Environment, Unavailable

PROTOCOL = BENCHMARKS.parent / "proto" / "python"
DEPTHS = (32, 256)
BARS = {32: 1.1, 256: 4.0}
FAST, SLOW = {32: 3000, 256: 6000}, {32: 64, 256: 256}
"""How many rollouts a turn has, by how many are in flight."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to carry rollouts."""

    name: str
    command: Sequence[str]
    environment: Environment | None = None
    slow: bool = False

    @property
    def python(self) -> Path:
        """What runs its adapter."""
        return self.environment.python if self.environment else Path(sys.executable)

    @property
    def rollouts(self) -> dict[int, int]:
        """How many a turn has."""
        return SLOW if self.slow else FAST


FULL = Arm("ours, full", ("-m", "rivals.ours", "full"))
PROCESS = Arm("ours, process", ("-m", "rivals.ours", "process"))
POOL = Environment("verifiers_broker")
VERIFIERS = Arm("verifiers' broker", ("-m", "rivals.verifiers_broker", "theirs"), POOL)
BARE = Arm("verifiers' broker, workers of bare sockets", ("-m", "rivals.verifiers_broker", "bare"), POOL)
RAY = Arm("Ray actors, least-loaded", ("-m", "rivals.ray_actors"), Environment("ray_actors"))
NAIVE = Arm("naive grpc.aio broker", ("-m", "rivals.naive_grpc"), Environment("naive_grpc"))
LIGHTNING = Arm(
    "Agent Lightning's server",
    ("-m", "rivals.agent_lightning"),
    Environment("agent_lightning", newer_python=True),
    slow=True,
)
ARMS = (FULL, VERIFIERS, BARE, PROCESS, RAY, NAIVE, LIGHTNING)
Runs = dict[tuple[Arm, int], list[dict[str, float]]]


def main() -> int:
    """Installs, measures, writes, prints."""
    parser = benchmark_parser("rivals", __doc__)
    arguments = parser.parse_args()
    arms = [arm for arm in ARMS if available(arm)]
    runs = measure(arms, arguments.repetitions)
    method = (
        f"empty rollouts, a server, 2 nodes, a caller; each arm alone in its turn, arms in turn; "
        f"medians of {arguments.repetitions} turns, ratios of turns of one round"
    )
    return publish("our executor and its rivals", figures(arms, runs), method=method, file=arguments.json)


def available(arm: Arm) -> bool:
    """Whether it can be run here; why not is said. Without verifiers there is nothing to hold the bars against."""
    try:
        if arm.environment is not None:
            arm.environment.make()
    except Unavailable as reason:
        if arm is VERIFIERS:
            raise
        print(f"{arm.name} is left out: {reason}")
        return False
    return True


def measure(arms: Sequence[Arm], repetitions: int) -> Runs:
    """All turns."""
    runs: Runs = {(arm, depth): [] for arm in arms for depth in DEPTHS}
    for _ in range(repetitions):
        for arm in arms:
            with running(arm) as driver:
                ask(driver, DEPTHS[0], arm.rollouts[DEPTHS[0]] // 4)  # Warm.
                for depth in DEPTHS:
                    runs[arm, depth].append(ask(driver, depth, arm.rollouts[depth]))
    return runs


@contextmanager
def running(arm: Arm) -> Iterator[subprocess.Popen[bytes]]:
    """An arm's adapter, with all that it starts. It ends what it started when its input ends."""
    variables = {"PYTHONPATH": f"{BENCHMARKS}:{PROTOCOL}", "RAY_USAGE_STATS_ENABLED": "0"}
    with children([arm.command], python=arm.python, variables=variables, stdin=subprocess.PIPE) as [driver]:
        try:
            yield driver
        finally:
            pipe(driver.stdin).close()
            driver.wait(30)


def ask(driver: subprocess.Popen[bytes], in_flight: int, rollouts: int) -> dict[str, Any]:
    """Has an adapter run so many rollouts. Returns what it measured."""
    pipe(driver.stdin).write(f"{in_flight} {rollouts}\n".encode())
    pipe(driver.stdin).flush()
    for line in pipe(driver.stdout):
        if line.startswith(b"{"):
            found: dict[str, Any] = json.loads(line)
            return found
    raise RuntimeError(f"an adapter ended with status {driver.wait()}")


def pipe(end: IO[bytes] | None) -> IO[bytes]:
    """A pipe that is there."""
    assert end is not None
    return end


def figures(arms: Sequence[Arm], runs: Runs) -> list[Figure]:
    """Rates, CPU, and ours over verifiers'."""
    found = []
    for depth in DEPTHS:
        for arm in arms:
            rate, cpu = (statistics.median(run[key] for run in runs[arm, depth]) for key in ("rate", "cpu_ms"))
            found.append(Figure(f"{depth} in flight: {arm.name}", rate, "/s"))
            found.append(Figure(f"{depth} in flight: {arm.name}, server CPU a rollout", cpu, " ms"))
        for ours, theirs, bar in ((FULL, VERIFIERS, BARS[depth]), (PROCESS, VERIFIERS, None), (FULL, BARE, None)):
            what = f"{depth} in flight: {ours.name}, over {theirs.name}"
            found.append(Figure(what, ratio(runs[ours, depth], runs[theirs, depth]), "×", at_least=bar))
    return found


def ratio(ours: Sequence[dict[str, float]], theirs: Sequence[dict[str, float]]) -> float:
    """Our rate over theirs, round by round, the median."""
    return statistics.median(mine["rate"] / other["rate"] for mine, other in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    raise SystemExit(main())
