"""Tasks and trajectories in files: JSON Lines in protobuf's JSON form, which every language reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from google.protobuf import json_format

from practicum.v1 import task_pb2, trajectory_pb2

Line = TypeVar("Line", task_pb2.Task, trajectory_pb2.Trajectory)


def read_tasks(path: Path) -> list[task_pb2.Task]:
    """Tasks of a file, one a line. ValueError names the line that is wrong, and why."""
    return list(read_lines(path, task_pb2.Task))


def read_trajectories(path: Path) -> Iterator[trajectory_pb2.Trajectory]:
    """Trajectories of a file, one a line. ValueError names the line that is wrong, and why."""
    return read_lines(path, trajectory_pb2.Trajectory)


def write_trajectories(path: Path, trajectories: Iterable[trajectory_pb2.Trajectory]) -> int:
    """Writes trajectories, one a line. Returns how many."""
    count = 0
    with path.open("w") as file:
        for trajectory in trajectories:
            file.write(json_format.MessageToJson(trajectory, indent=None) + "\n")
            count += 1
    return count


def read_lines(path: Path, kind: type[Line]) -> Iterator[Line]:
    """Messages of this kind; blank lines are skipped."""
    with path.open() as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                yield json_format.Parse(line, kind())
            except json_format.ParseError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
