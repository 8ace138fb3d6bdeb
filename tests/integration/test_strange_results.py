"""Results that are not what their assignment asked for."""

from __future__ import annotations

import pytest
from support.boxes import submit
from support.executor_door import Stub, task
from support.executor_door import executor as executor
from support.executor_door import stub as stub
from support.scripted_node import ScriptedNode, trajectory_of
from support.services import Service

from practicum.v1 import task_pb2


@pytest.mark.parametrize("field", ["rollout_id", "task_id", "group_id", "attempt"])
def test_a_trajectory_of_something_else_is_a_failed_attempt(executor: Service, stub: Stub, field: str) -> None:
    """Whoever reads it would believe what it says of itself."""
    node = ScriptedNode(executor.address)
    submit(stub, [task("t", retry=task_pb2.RetryPolicy(max_attempts=2))])
    (first,) = node.assignments(1)
    node.bring(first, trajectory=trajectory_of(first, **{field: 7 if field == "attempt" else "else"}))
    (second,) = node.assignments(1)
    assert second.attempt == 2
    node.close()
    assert "TRAJECTORY_MALFORMED" in executor.text
