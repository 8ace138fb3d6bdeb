"""What is logged, traced and called within a rollout carries its ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from structlog.contextvars import bound_contextvars

from practicum.common import tracing
from practicum.v1 import dispatch_pb2


@contextmanager
def rollout_scope(assignment: dispatch_pb2.Assignment, node_id: str) -> Iterator[tracing.Span]:
    """The rollout's span, as the child of what submitted its task. It belongs to one asyncio task."""
    ids: dict[str, str | int] = {
        "rollout_id": assignment.rollout_id,
        "task_id": assignment.task.id,
        "attempt": assignment.attempt,
        "lease_id": assignment.lease_id,
        "node_id": node_id,
    }
    parent = tracing.valid(assignment.traceparent)
    facts = {f"practicum.{name}": value for name, value in ids.items()}
    with tracing.span("rollout", facts, parent=parent, begins=True) as span:
        trace_id = tracing.trace_id_of(tracing.current())
        with bound_contextvars(**ids, **({"trace_id": trace_id} if trace_id else {})):
            yield span
