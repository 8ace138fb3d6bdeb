"""Rollouts at work, a consumer that begins again and again, and kill -9 at random of whatever runs them."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from support.postgres import Postgres
from support.services import Service, Services

from practicum.client import CallFailed, ExecutorClient, Task

AGENTS = ("--agent", "napper=support.agents:napper", "--slots", "8")
LEADER_LEASE_SECONDS = 2
WAIT_SECONDS = 120.0


@dataclass
class Outcome:
    """What was accepted, what is stored, and what a consumer was told."""

    expected: set[str]
    stored: Counter[str]
    told: Counter[str]
    kills: Counter[str]
    begun_again: int
    seconds: float

    @property
    def lost(self) -> int:
        """Rollouts without a stored trajectory."""
        return len(self.expected - self.stored.keys())

    @property
    def doubled(self) -> int:
        """Stored trajectories beyond one for each rollout, or of rollouts that nobody asked for."""
        return sum(self.stored.values()) - len(self.expected & self.stored.keys())

    @property
    def untold(self) -> int:
        """Rollouts that the consumer never heard of."""
        return len(self.expected - self.told.keys())


@dataclass
class Cluster:
    """What may be killed."""

    executors: list[Service]
    nodes: list[Service]
    postgres: Postgres | None = None
    addresses: str = field(init=False)

    def __post_init__(self) -> None:
        self.addresses = ",".join(executor.address for executor in self.executors)


def start_cluster(services: Services, postgres: Postgres | None, *, nodes: int = 3) -> Cluster:
    """An executor on SQLite, or one with a standby on PostgreSQL; and its nodes."""
    if postgres is None:
        executors = [services.executor()]
    else:
        flags = ("--database", postgres.new_database(), "--leader-lease-seconds", str(LEADER_LEASE_SECONDS))
        executors = [services.start("executor", *flags, "--lease-seconds", "3", wait=False) for _ in range(2)]
    addresses = ",".join(executor.address for executor in executors)
    started = [
        services.start("node", "--node-id", f"node-{index}", "--executor", addresses, *AGENTS) for index in range(nodes)
    ]
    return Cluster(executors, started, postgres)


class Killer:
    """Kills -9, waits a little, starts again; as a supervisor does, it also starts what ended by itself."""

    def __init__(self, cluster: Cluster, seed: int, *, pause_seconds: float) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._pause_seconds = pause_seconds
        self.kills: Counter[str] = Counter()

    def run(self, stop: threading.Event) -> None:
        """Until told to stop."""
        while not stop.wait(self._random.uniform(0.5, 1.5) * self._pause_seconds):
            self._kill_one()
            self.revive()

    def _kill_one(self) -> None:
        kinds = ["node", "node", "executor"] + ["postgres"] * (self._cluster.postgres is not None)
        kind = self._random.choice(kinds)
        self.kills[kind] += 1
        if kind == "postgres":
            assert self._cluster.postgres is not None
            self._cluster.postgres.kill()
            time.sleep(self._random.uniform(0, 0.5))
            self._cluster.postgres.start()
            return
        victim = self._random.choice(self._cluster.nodes if kind == "node" else self._cluster.executors)
        victim.kill()
        time.sleep(self._random.uniform(0, 1))

    def revive(self) -> None:
        """Starts what has ended."""
        for service in (*self._cluster.executors, *self._cluster.nodes):
            if service.process is None or service.process.poll() is not None:
                service.launch()


class Reader:
    """A consumer whose process is, as it were, started anew every so often: a new client, the same name."""

    def __init__(self, addresses: str, seed: int) -> None:
        self._addresses = addresses
        self._random = random.Random(seed)
        self.told: Counter[str] = Counter()
        self.begun_again = 0

    def run(self, stop: threading.Event) -> None:
        """Reads until told to stop."""
        while not stop.is_set():
            with ExecutorClient(self._addresses) as client:
                try:
                    self._read(client, stop)
                except CallFailed as error:
                    if not error.may_retry:
                        raise

    def _read(self, client: ExecutorClient, stop: threading.Event) -> None:
        left = self._random.randint(1, 80)
        for trajectory in client.trajectories("chaos-reader"):
            if trajectory.rollout_id not in self.told:
                self.begun_again += trajectory.attempt > 1
            self.told[trajectory.rollout_id] += 1
            left -= 1
            if not left or stop.is_set():
                return  # In the middle: the last one was not acked, and comes again.


def run_chaos(
    services: Services, postgres: Postgres | None, *, rollouts: int, seconds: float, seed: int, pause_seconds: float
) -> Outcome:
    """Submits for so many seconds, kills meanwhile, and waits until everything has ended."""
    began = time.monotonic()
    cluster = start_cluster(services, postgres)
    killer, reader = Killer(cluster, seed, pause_seconds=pause_seconds), Reader(cluster.addresses, seed)
    expected: set[str] = set()
    with ExecutorClient(cluster.addresses) as client:
        bell = nap("bell", random.Random(seed))
        with beside(reader.run, wake=lambda: submit_one(client, bell)):
            accepted = threading.Event()

            def submit(stop: threading.Event) -> None:
                try:
                    expected.update(submit_slowly(client, rollouts, seconds, random.Random(seed)))
                finally:
                    accepted.set()

            with beside(submit):
                # In this thread: what it starts again is told to end when the thread that started it does.
                killer.run(accepted)
            wait_until(lambda: expected <= reader.told.keys(), meanwhile=killer.revive)
        stored = Counter(t.rollout_id for t in client.query() if t.task_id != bell.id)
    told = Counter({rollout_id: count for rollout_id, count in reader.told.items() if rollout_id in expected})
    return Outcome(expected, stored, told, killer.kills, reader.begun_again, time.monotonic() - began)


def submit_slowly(client: ExecutorClient, rollouts: int, seconds: float, source: random.Random) -> set[str]:
    """Groups of four, spread over the time, with all the patience that a caller may have."""
    expected: set[str] = set()
    began, groups = time.monotonic(), -(-rollouts // 4)
    for index in range(groups):
        time.sleep(max(began + seconds * index / groups - time.monotonic(), 0))
        expected |= submit_one(client, nap(f"chaos-{index}", source))
    return expected


def submit_one(client: ExecutorClient, task: Task) -> set[str]:
    """Until it is accepted; repeats change nothing, since the task has an id."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            (submitted,) = client.submit([task])
        except CallFailed as error:
            if not error.may_retry or time.monotonic() > deadline:
                raise
        else:
            return set(submitted.rollout_ids)


def nap(task_id: str, source: random.Random) -> Task:
    """Four rollouts that take a while; whoever dies under them, they are tried again."""
    settings = json.dumps({"seconds": round(source.uniform(0.05, 3.0), 2)})
    task = Task(id=task_id, instruction="take a nap", agent={"kind": "napper", "config_json": settings}, rollouts=4)
    task.retry.max_attempts = 1_000
    return task


def wait_until(true: Callable[[], bool], *, meanwhile: Callable[[], None]) -> None:
    """Gives up after a while: what is missing then is lost."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not true() and time.monotonic() < deadline:
        meanwhile()
        time.sleep(0.05)


@contextmanager
def beside(work: Callable[[threading.Event], None], *, wake: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Runs something in a thread for as long as the context lasts; at the end it is woken, and its error raised."""
    stop, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that can tell of it
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        wake()
        thread.join(WAIT_SECONDS)
    if errors:
        raise errors[0]
