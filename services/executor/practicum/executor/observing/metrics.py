"""The executor's figures for Prometheus: read from its state when they are asked for, or counted in `tally`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from sqlalchemy.exc import SQLAlchemyError

from practicum.common.histogram import Histogram
from practicum.executor.core import Executor
from practicum.executor.delivery.consumers import Consumers
from practicum.executor.observing.events import OUTCOMES
from practicum.executor.scheduling.nodes import Node

PREFIX = "practicum_executor_"


class ExecutorMetrics:
    """Reads one executor that leads. `epoch`: of its leadership; None where there can't be another."""

    def __init__(self, executor: Executor, consumers: Consumers, *, epoch: int | None = None) -> None:
        self._executor = executor
        self._consumers = consumers
        self._epoch = epoch

    async def read(self) -> list[Metric]:
        """Everything, as it stands now."""
        try:
            stored = await asyncio.to_thread(self._executor.store.consumers)
        except SQLAlchemyError:
            stored = {}  # The database is away: what is connected is known anyway.
        return [
            *leadership(self._epoch, leads=True),
            *self._queues(),
            *self._nodes(),
            *self._attempts(),
            *self._commits(),
            lags(self._consumers.lags(stored)),
        ]

    def _queues(self) -> Iterator[Metric]:
        scheduler, now = self._executor.scheduler, time.monotonic()
        depth = gauge("queue_rollouts", "Rollouts that wait (queued) or run (running).", "queue", "state")
        age = gauge("queue_oldest_age_seconds", "How long the rollout has waited that stands in line longest.", "queue")
        for name, counts in scheduler.queues.items():
            depth.add_metric((name, "queued"), counts.queued)
            depth.add_metric((name, "running"), counts.running)
            oldest = scheduler.oldest(name)
            age.add_metric((name,), 0.0 if oldest is None else now - oldest)
        dead = counter("dead_letters", "Rollouts whose attempts are used up.", "queue")
        for name, ended in self._executor.backlog.queues.items():
            dead.add_metric((name,), ended.dead)
        yield from (depth, age, dead)
        yield gauge("backlog_rollouts", "Rollouts that wait or run, in all queues.", value=len(scheduler.rollouts))
        limit = self._executor.settings.max_backlog
        yield gauge("backlog_limit_rollouts", "So many may wait or run; more are refused.", value=limit)
        yield gauge("leases", "Leases that nodes hold.", value=len(scheduler.leases))

    def _nodes(self) -> Iterator[Metric]:
        load = gauge("node_load", "(running + queued) / slots.", "node")
        running = gauge("node_running_rollouts", "Rollouts that a node holds leases for.", "node")
        slots = gauge("node_slots", "Rollouts that a node may run at once.", "node")
        states = dict.fromkeys(("connected", "draining", "absent"), 0)
        for name, node in self._executor.scheduler.nodes.items():
            states[state_of(node)] += 1
            load.add_metric((name,), node.load)
            running.add_metric((name,), len(node.leases))
            slots.add_metric((name,), node.slots)
        count = gauge("nodes", "Nodes by state; draining ones are connected, absent ones hold leases yet.", "state")
        for state, number in states.items():
            count.add_metric((state,), number)
        yield from (count, load, running, slots)

    def _attempts(self) -> Iterator[Metric]:
        tally = self._executor.tally
        yield counter("attempts_started", "Attempts that were given to nodes.", value=tally.attempts)
        failed = counter("attempts_failed", "Attempts that ended without a trajectory, by reason.", "reason")
        for reason, number in tally.failures.items():
            failed.add_metric((reason,), number)
        ended = counter("rollouts_ended", "Rollouts whose end is on disk, by outcome.", "outcome")
        for outcome, number in tally.outcomes.items():
            ended.add_metric((OUTCOMES[outcome],), number)
        yield from (failed, ended)
        told = "From the submit until the first attempt was on disk and its node was told."
        yield histogram("dispatch_latency_seconds", told, tally.dispatch_seconds)

    def _commits(self) -> Iterator[Metric]:
        commits = self._executor.writer.commits
        yield histogram("commit_seconds", "Transactions that were committed, and how long they took.", commits.seconds)
        yield counter("commit_rows", "Rows and changes that were committed.", value=commits.rows)
        yield counter(
            "commits_failed", "Transactions that the store could not take; they are repeated.", value=commits.failed
        )


async def standby_metrics() -> list[Metric]:
    """What a standby tells."""
    return list(leadership(None, leads=False))


def leadership(epoch: int | None, *, leads: bool) -> Iterator[Metric]:
    """Whether this executor leads, and since which epoch."""
    yield gauge("leader", "1 for the executor that leads, 0 for a standby.", value=float(leads))
    if epoch is not None:
        yield gauge("leader_epoch", "Rises with each executor that begins to lead.", value=epoch)


def lags(of: Mapping[str, int]) -> Metric:
    """How far consumers are behind."""
    lag = gauge(
        "consumer_lag_results", "Results that a consumer has not acked; those count that it may not want.", "consumer"
    )
    for name, results in of.items():
        lag.add_metric((name,), results)
    return lag


def state_of(node: Node) -> str:
    """As `practicum nodes` calls it."""
    return "absent" if not node.connected else "draining" if node.draining else "connected"


def gauge(name: str, text: str, *labels: str, value: float | None = None) -> GaugeMetricFamily:
    """One that may go down."""
    return GaugeMetricFamily(PREFIX + name, text, value=value, labels=labels or None)


def counter(name: str, text: str, *labels: str, value: float | None = None) -> CounterMetricFamily:
    """One that only rises."""
    return CounterMetricFamily(PREFIX + name, text, value=value, labels=labels or None)


def histogram(name: str, text: str, values: Histogram) -> HistogramMetricFamily:
    """Values by size."""
    return HistogramMetricFamily(PREFIX + name, text, buckets=values.buckets, sum_value=values.total)
