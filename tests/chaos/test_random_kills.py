"""kill -9 at random of nodes, executors and the database. `make accept-executor` is the long form."""

from __future__ import annotations

import pytest
from support.chaos import Outcome, run_chaos
from support.postgres import running_postgres
from support.services import Services

pytestmark = pytest.mark.processes


def check(outcome: Outcome) -> None:
    """Each rollout has one stored trajectory, and the consumer was told of each."""
    assert (outcome.lost, outcome.doubled, outcome.untold) == (0, 0, 0), outcome
    assert outcome.told.keys() == outcome.expected
    assert sum(outcome.kills.values()) >= 5, "hardly anything was killed"


def test_random_kills_lose_and_double_nothing_on_sqlite(services: Services) -> None:
    """The executor comes back and finds everything."""
    check(run_chaos(services, None, rollouts=160, seconds=15.0, seed=1, pause_seconds=1.0))


def test_random_kills_lose_and_double_nothing_on_postgresql(services: Services) -> None:
    """The standby takes over, and the database's death is survived as well."""
    with running_postgres() as postgres:
        check(run_chaos(services, postgres, rollouts=160, seconds=20.0, seed=2, pause_seconds=1.5))
