"""The Python client of Practicum: submit tasks, read trajectories, watch sessions.

from practicum.client import ExecutorClient, Task

with ExecutorClient("127.0.0.1:50051") as executor:
    executor.submit([Task(instruction="open box 17", agent={"kind": "tool_agent"}, environment={"name": "boxes"})])
    for trajectory in executor.trajectories("my-reader"):
        print(trajectory.rollout_id, trajectory.reward)
"""

from practicum.client.errors import CallFailed, SubmitFailed
from practicum.client.executor import ExecutorClient
from practicum.client.files import read_tasks, read_trajectories, write_trajectories
from practicum.client.trainer import TrainerClient
from practicum.v1.message_pb2 import Message
from practicum.v1.task_pb2 import AgentSpec, EnvironmentSpec, Limits, Scoring, Task
from practicum.v1.trajectory_pb2 import Trajectory

__all__ = [
    "AgentSpec",
    "CallFailed",
    "EnvironmentSpec",
    "ExecutorClient",
    "Limits",
    "Message",
    "Scoring",
    "SubmitFailed",
    "Task",
    "TrainerClient",
    "Trajectory",
    "read_tasks",
    "read_trajectories",
    "write_trajectories",
]
