"""A node that is to take nothing new: told by the client, and by the command."""

from __future__ import annotations

import pytest
from support.boxes import submit
from support.commands import practicum
from support.executor_door import Stub, task
from support.executor_door import executor as executor
from support.executor_door import stub as stub
from support.scripted_node import ScriptedNode
from support.services import Service

from practicum.client import CallFailed, ExecutorClient


def test_a_node_that_drains_takes_nothing_new(executor: Service, stub: Stub) -> None:
    """It keeps what it runs, and another node takes what comes."""
    resting = ScriptedNode(executor.address, "a", slots=1)
    submit(stub, [task("before")])
    (kept,) = resting.assignments(1)
    shown = practicum("drain", "a", "--executor", executor.address)
    assert "a takes nothing new; rollouts that still run there: 1" in shown
    assert "draining" in practicum("nodes", "--executor", executor.address)
    while not resting.next_frame().drain:
        pass
    resting.finish(kept)
    other = ScriptedNode(executor.address, "b")
    submit(stub, [task("after")])
    assert other.assignments(1)[0].task.id == "after"
    resting.close()
    other.close()


def test_draining_a_node_that_nobody_knows_is_told(executor: Service) -> None:
    """In a sentence by the command, with its reason by the client."""
    assert "NODE_UNKNOWN" in practicum("drain", "nobody", "--executor", executor.address, status=1)
    with ExecutorClient(executor.address) as client, pytest.raises(CallFailed) as error:
        client.drain("nobody")
    assert (error.value.reason, error.value.metadata["node_id"]) == ("NODE_UNKNOWN", "nobody")
