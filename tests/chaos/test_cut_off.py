"""A node whose packets to the executor are dropped, while it reaches the environment still."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cut_off import cut_off
from support.services import Services

from practicum.v1 import trajectory_pb2


@pytest.mark.processes
def test_a_node_that_was_cut_off_acts_no_more_once_its_attempt_was_superseded(
    services: Services, tmp_path: Path
) -> None:
    """It can't know; the gateway refuses it."""
    result = cut_off(services, tmp_path, seconds=6.0)
    assert len(result.first) > 2, "it hardly acted before it was cut off"
    assert len(result.second) > 2
    assert result.late == 0
    (trajectory,) = result.stored
    assert (trajectory.attempt, trajectory.node_id) == (2, "other")
    assert trajectory.outcome == trajectory_pb2.OUTCOME_FINISHED
