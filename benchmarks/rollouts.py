"""Replays recorded latencies through the real executor and real nodes: one at a time, one bounded node, several nodes.

    python benchmarks/rollouts.py            # three minutes; exits with 1 when a bar is missed

Agents sleep as long as the trace says, divided by `--faster`. The bound is what nobody can beat: the slowest rollout,
or all of them spread evenly over the slots. With fewer slots than rollouts it takes a good order to come near: a caller
who knows how long tasks take gives the longest the lowest priority value. As they come is printed beside, and what
each order allows at best.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from figures import Figure
from load.bounds import bound, in_order
from load.executor_client import ExecutorClient, executor_client
from load.executors import Service, running_executor
from load.processes import programs
from load.results import benchmark_parser, publish
from traces.make_traces import trace_file

from practicum.v1 import executor_pb2, task_pb2

SPEED_UP, SHARE = 14.66, 90.0
FIRST, SECOND = 1, 2
"""Seeds of the traces."""


@dataclass(frozen=True, slots=True)
class Arm:
    """A way to run a trace: so many nodes of so many slots, and whether the longest go first."""

    name: str
    seed: int
    nodes: int
    slots: int
    longest_first: bool = False

    @property
    def all_slots(self) -> int:
        """Rollouts at once."""
        return self.nodes * self.slots


ONE_AT_A_TIME = Arm("one at a time", FIRST, 1, 1)
ONE_NODE = Arm("1 node of 8", FIRST, 1, 8)
FOUR_NODES = Arm("4 nodes of 8", FIRST, 4, 8)
AS_THEY_COME = Arm("second trace, 2 nodes of 4, as they come", SECOND, 2, 4)
LONGEST_FIRST = Arm("second trace, 2 nodes of 4, longest first", SECOND, 2, 4, longest_first=True)
ARMS = (ONE_AT_A_TIME, ONE_NODE, FOUR_NODES, AS_THEY_COME, LONGEST_FIRST)


def main() -> int:
    """Replays, writes, prints."""
    parser = benchmark_parser("rollouts", __doc__, repetitions=3)
    parser.add_argument("--faster", type=float, default=400, help="than recorded (default: %(default)g)")
    arguments = parser.parse_args()
    took = asyncio.run(replay(arguments.repetitions, arguments.faster))
    method = (
        f"32 rollouts, mean 240 s, {arguments.faster:g} times faster; real executor (full) and nodes, as processes; "
        f"from submit to the last trajectory, medians of {arguments.repetitions} runs, arms in turn"
    )
    return publish("rollouts of a recorded trace", figures(took, arguments.faster), method=method, file=arguments.json)


async def replay(repetitions: int, faster: float) -> dict[Arm, float]:
    """Seconds that each arm takes, the median."""
    took: dict[Arm, list[float]] = {arm: [] for arm in ARMS}
    with running_executor("full") as executor, nodes_of_all(executor):
        async with executor_client(executor.address) as client:
            await all_connected(client)
            for _ in range(repetitions):
                for arm, found in took.items():
                    found.append(await run(client, arm, faster))
    return {arm: statistics.median(found) for arm, found in took.items()}


async def run(client: ExecutorClient, arm: Arm, faster: float) -> float:
    """Seconds from the submit of all to the last trajectory."""
    lengths = iter(seconds_of(arm, faster))

    def make(task_id: str) -> task_pb2.Task:
        seconds = next(lengths)
        return task_pb2.Task(
            id=task_id,
            instruction="replay",
            agent=task_pb2.AgentSpec(kind="replay", config_json=json.dumps({"seconds": seconds})),
            priority=-round(1000 * seconds) if arm.longest_first else 0,
            required_node_labels={"set": set_of(arm)},
        )

    count = len(seconds_of(arm, faster))
    return (await client.keep_in_flight(count, rollouts=count, cpu=lambda: 0.0, make=make)).seconds


def seconds_of(arm: Arm, faster: float) -> list[float]:
    """The trace, in the order as recorded."""
    recorded = json.loads(trace_file(arm.seed).read_text())["seconds"]
    return [each / faster for each in recorded]


def set_of(arm: Arm) -> str:
    """The label of the nodes that run an arm."""
    return f"{arm.nodes}x{arm.slots}"


@contextmanager
def nodes_of_all(executor: Service) -> Iterator[None]:
    """Real nodes for every arm; all are up, and tasks say by label whose they are."""
    sets = {set_of(arm): arm for arm in ARMS}
    with tempfile.TemporaryFile() as log:
        commands = [node_command(executor.address, arm, index) for arm in sets.values() for index in range(arm.nodes)]
        with programs(commands, stdout=log, stderr=log):
            yield


def node_command(executor: str, arm: Arm, index: int) -> Sequence[str]:
    """How a node is started."""
    name = set_of(arm)
    labels = ("--label", f"set={name}", "--agent", "replay=load.replay:replay")
    place = ("--executor", executor, "--address", "127.0.0.1:0")
    return ("-m", "practicum.node", "--node-id", f"{name}-{index}", "--slots", str(arm.slots), *labels, *place)


async def all_connected(client: ExecutorClient) -> None:
    """Until every node is."""
    wanted = sum({set_of(arm): arm.nodes for arm in ARMS}.values())
    async with asyncio.timeout(60):
        while len((await client.stub.ListNodes(executor_pb2.ListNodesRequest())).nodes) < wanted:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def figures(took: dict[Arm, float], faster: float) -> list[Figure]:
    """Speed-ups and shares beside their bars."""
    alone = took[ONE_AT_A_TIME]
    found = [Figure("one at a time", alone, " s")]
    for arm in (ONE_NODE, FOUR_NODES):
        bar = SPEED_UP if arm is FOUR_NODES else None
        found.append(Figure(f"{arm.name}: speed-up over one at a time", alone / took[arm], "×", at_least=bar))
    for arm, bar in ((ONE_NODE, None), (FOUR_NODES, SHARE), (LONGEST_FIRST, SHARE), (AS_THEY_COME, None)):
        found.append(Figure(f"{arm.name}: share of the bound", share(arm, took[arm], faster), "%", at_least=bar))
        ideal = in_order(order_of(arm, faster), arm.all_slots)
        found.append(Figure(f"{arm.name}: share that its order allows", share(arm, ideal, faster), "%"))
    return found


def order_of(arm: Arm, faster: float) -> list[float]:
    """The order in which an arm's rollouts begin."""
    seconds = seconds_of(arm, faster)
    return sorted(seconds, reverse=True) if arm.longest_first else seconds


def share(arm: Arm, seconds: float, faster: float) -> float:
    """What a time is worth, in percent of the bound."""
    return 100 * bound(seconds_of(arm, faster), arm.all_slots) / seconds


if __name__ == "__main__":
    raise SystemExit(main())
