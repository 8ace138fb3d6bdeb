"""Who gets how much of the work, with a real executor and nodes that take a known time."""

from __future__ import annotations

import threading
import time

import grpc
import pytest
from support.executor_door import Stub
from support.executor_door import executor as executor
from support.executor_door import stub as stub
from support.scripted_node import ScriptedNode
from support.services import Service

from practicum.v1 import executor_pb2, task_pb2

pytestmark = pytest.mark.processes
FAST_SECONDS = 0.1
SLOWER = 5


def work(address: str, node_id: str, seconds: float) -> ScriptedNode:
    """A node of four slots that takes so long for each rollout."""
    node = ScriptedNode(address, node_id, slots=4)

    def run() -> None:
        try:
            while True:
                for assignment in node.assignments(1):
                    threading.Timer(seconds, node.finish, [assignment]).start()
        except (grpc.RpcError, StopIteration):
            return

    threading.Thread(target=run, daemon=True).start()
    return node


def submit(stub: Stub, count: int) -> None:
    agent = task_pb2.AgentSpec(kind="tool_agent")
    stub.SubmitTasks(
        executor_pb2.SubmitTasksRequest(tasks=[task_pb2.Task(instruction="x", agent=agent) for _ in range(count)])
    )


def nodes_of(stub: Stub) -> dict[str, executor_pb2.NodeInfo]:
    return {node.node_id: node for node in stub.ListNodes(executor_pb2.ListNodesRequest()).nodes}


def test_a_node_five_times_slower_does_a_fifth_and_loads_return_to_zero(executor: Service, stub: Stub) -> None:
    """As long as the backlog is never empty; the figure is what the acceptance asks for."""
    fast = work(executor.address, "fast", FAST_SECONDS)
    slow = work(executor.address, "slow", FAST_SECONDS * SLOWER)
    submit(stub, 420)
    while (found := nodes_of(stub))["fast"].finished < 320:
        time.sleep(0.02)
    (queue,) = stub.GetQueueStats(executor_pb2.GetQueueStatsRequest()).queues
    assert queue.queued > 0, "the backlog was empty before the end"
    assert found["slow"].finished / found["fast"].finished == pytest.approx(0.2, abs=0.03)
    stub.CancelTasks(executor_pb2.CancelTasksRequest(task_ids=[t.task.id for t in listed(stub)]))
    assert {node.load for node in nodes_of(stub).values()} == {0.0}
    fast.close()
    slow.close()


def listed(stub: Stub) -> list[executor_pb2.TaskStatus]:
    """Tasks with rollouts that have not ended."""
    states = [executor_pb2.ROLLOUT_STATE_QUEUED, executor_pb2.ROLLOUT_STATE_RUNNING]
    return list(stub.ListTasks(executor_pb2.ListTasksRequest(states=states, page_size=1000)).tasks)


def test_idle_nodes_share_evenly(executor: Service, stub: Stub) -> None:
    """Each rollout finds all nodes idle, and ties rotate."""
    nodes = [work(executor.address, name, 0.0) for name in "abc"]
    for done in range(1, 31):
        submit(stub, 1)
        while sum(node.finished for node in nodes_of(stub).values()) < done:
            time.sleep(0.001)
    assert [node.finished for node in nodes_of(stub).values()] == [10, 10, 10]
    for node in nodes:
        node.close()
