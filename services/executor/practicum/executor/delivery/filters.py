"""What a reader wants: refused where it is too much to look for, and quick to compare with each result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from practicum.executor.store.labels import matches
from practicum.executor.store.results import Result
from practicum.v1 import executor_pb2

MAX_LABELS = 100
MAX_QUEUES = 1_000
MAX_OUTCOMES = 100


@dataclass(frozen=True, slots=True)
class Wanted:
    """A TrajectoryFilter, made once for each stream: a list would be searched for each result."""

    labels: Mapping[str, str]
    queues: frozenset[str]
    outcomes: frozenset[int]
    min_reward: float | None

    @classmethod
    def of(cls, asked: executor_pb2.TrajectoryFilter) -> Wanted:
        """What a filter says."""
        least = asked.min_reward if asked.HasField("min_reward") else None
        return cls(dict(asked.labels), frozenset(asked.queues), frozenset(asked.outcomes), least)

    def of_interest(self, result: Result) -> bool:
        """Whether the task is one that the reader wants to hear of."""
        if self.labels and not matches(result.labels, self.labels):
            return False
        return not self.queues or result.queue in self.queues

    def meets(self, result: Result) -> bool:
        """Whether the trajectory of such a task meets the rest."""
        if self.outcomes and result.outcome not in self.outcomes:
            return False
        return self.min_reward is None or result.reward >= self.min_reward


def filter_faults(asked: executor_pb2.TrajectoryFilter) -> Iterator[tuple[str, str]]:
    """The fields of a filter that are wrong, with what is wrong."""
    for field, count, most in (
        ("labels", len(asked.labels), MAX_LABELS),
        ("queues", len(asked.queues), MAX_QUEUES),
        ("outcomes", len(asked.outcomes), MAX_OUTCOMES),
    ):
        if count > most:
            yield f"filter.{field}", f"has {count} entries; give at most {most}"


def label_faults(labels: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Too many labels to look for."""
    if len(labels) > MAX_LABELS:
        yield "labels", f"has {len(labels)} entries; give at most {MAX_LABELS}"
