"""What a filter lets through."""

from __future__ import annotations

import pytest

from practicum.executor.delivery.filters import Wanted
from practicum.executor.store.results import Result
from practicum.v1 import executor_pb2

RESULT = Result(1, "t", "t/0", "q", {"stage": "rl", "run": "monday"}, 2, 0.5, 0, b"")


@pytest.mark.parametrize(
    ("asked", "task", "trajectory"),
    [
        ({}, True, True),
        ({"queues": ["p", "q"]}, True, True),
        ({"queues": ["p"]}, False, True),
        ({"labels": {"stage": "rl"}}, True, True),
        ({"labels": {"stage": "rl", "run": "friday"}}, False, True),
        ({"outcomes": [1, 2]}, True, True),
        ({"outcomes": [1]}, True, False),
        ({"min_reward": 0.5}, True, True),
        ({"min_reward": 0.6}, True, False),
        ({"min_reward": 0.0}, True, True),
    ],
)
def test_all_conditions_must_hold(asked: dict[str, object], task: bool, trajectory: bool) -> None:
    """Those of the task, and those of its trajectory."""
    wanted = Wanted.of(executor_pb2.TrajectoryFilter(**asked))  # type: ignore[arg-type]
    assert (wanted.of_interest(RESULT), wanted.meets(RESULT)) == (task, trajectory)


def test_what_is_looked_for_is_not_searched() -> None:
    """Lists of a message are searched from their beginning for each result."""
    wanted = Wanted.of(executor_pb2.TrajectoryFilter(queues=["a"], outcomes=[1]))
    assert isinstance(wanted.queues, frozenset)
    assert isinstance(wanted.outcomes, frozenset)
