"""The executor as a real process: what it accepted survives a kill -9."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grpc

from practicum.executor.store import SqlStore
from practicum.v1 import executor_pb2, executor_pb2_grpc, task_pb2


def test_accepted_tasks_survive_a_kill_9(tmp_path: Path, address: str) -> None:
    """SubmitTasks answered, so the rollout is on disk."""
    database = tmp_path / "executor.db"
    command = [sys.executable, "-m", "practicum.executor", "--address", address, "--database", str(database)]
    request = executor_pb2.SubmitTasksRequest(
        tasks=[task_pb2.Task(id="t", instruction="open box 17", agent={"kind": "tool_agent"}, rollouts=2)]
    )
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process, grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=30)
            answer = executor_pb2_grpc.ExecutorServiceStub(channel).SubmitTasks(request, timeout=10)
        finally:
            process.kill()
    assert [task.rollout_ids for task in answer.tasks] == [["t/0", "t/1"]]
    store = SqlStore(database)
    assert [rollout.rollout_id for rollout in store.unfinished()] == ["t/0", "t/1"]
    store.close()
