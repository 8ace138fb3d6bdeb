"""SIGTERM while somebody reads: they are told to come back, and the executor is gone at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import grpc
import pytest
from support.boxes import submit, trajectories
from support.commands import wait_for
from support.executor_door import Stub, task
from support.executor_door import executor as executor
from support.executor_door import stub as stub
from support.saying import refused, send
from support.scripted_node import ScriptedNode
from support.services import Service

from practicum.v1 import executor_pb2 as e

GRACE_SECONDS = 5.0
"""After it, calls that go on are cut off."""


def test_who_watches_a_session_is_told_to_come_back(executor: Service, stub: Stub) -> None:
    """It follows from the last sequence that it has."""
    submit(stub, [task("t")])
    send(stub, "hello")
    watch = stub.WatchSession(e.WatchSessionRequest(session_id="t/0"), timeout=60)
    assert next(watch).messages[0].text == "hello"
    assert_ended(executor, watch)


def test_who_queries_is_told_to_come_back(executor: Service, stub: Stub) -> None:
    """Between two frames: this reader is slow, and much is stored."""
    submit(stub, [task("t", 40)])
    node = ScriptedNode(executor.address, slots=40)
    for assignment in node.assignments(40):
        node.finish(assignment, "x" * 1_000_000)
    trajectories(stub, 1)
    query = stub.QueryTrajectories(e.QueryTrajectoriesRequest(), timeout=60)
    next(query)
    assert_ended(executor, query)


def assert_ended(executor: Service, call: Iterator[object]) -> None:
    """The executor stops at once, and the call says why it ended."""
    began = time.monotonic()
    stopped = threading.Thread(target=executor.stop)
    stopped.start()
    wait_for(lambda: "draining" in executor.text)
    with pytest.raises(grpc.RpcError) as error:
        list(call)
    stopped.join(20)
    assert refused(error.value)[:2] == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
    assert time.monotonic() - began < GRACE_SECONDS / 2
