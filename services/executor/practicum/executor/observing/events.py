"""What is logged of rollouts: one event each, with all ids that help to find the rest."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import structlog

from practicum.common.tracing import trace_id_of
from practicum.executor.scheduling.scheduler import Rollout
from practicum.v1 import trajectory_pb2

log = structlog.get_logger(__name__)

OUTCOMES: dict[int, str] = {v: name.removeprefix("OUTCOME_").lower() for name, v in trajectory_pb2.Outcome.items()}


def ids_of(rollout: Rollout, traceparent: str) -> dict[str, object]:
    """A rollout's ids, with those of the lease that it has, or had last."""
    ids: dict[str, object] = {"rollout_id": rollout.rollout_id, "task_id": rollout.task_id, "attempt": rollout.attempt}
    if rollout.lease_id is not None:
        ids |= {"lease_id": rollout.lease_id, "node_id": rollout.node_id}
    elif rollout.last_lease is not None:
        ids |= {"lease_id": rollout.last_lease.lease_id, "node_id": rollout.last_lease.node_id}
    return ids | traced(traceparent)


def traced(traceparent: str) -> dict[str, str]:
    """The trace's id, where there is one."""
    return {"trace_id": trace_id_of(traceparent)} if traceparent else {}


def detailed() -> bool:
    """Whether events of each rollout are wanted; they cost more than the rollout."""
    return bool(log.is_enabled_for(logging.DEBUG))


def tell(event: str, of: Iterable[dict[str, object]]) -> None:
    """One detailed event of each."""
    for facts in of:
        log.debug(event, **facts)
