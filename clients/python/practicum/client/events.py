"""From events of a stream to trajectories: parts are put together, repeats are dropped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from practicum.v1 import executor_pb2, trajectory_pb2


class Assembler:
    """Reads events in their order."""

    def __init__(self) -> None:
        self._parts = bytearray()
        self._newest = 0

    def trajectories(
        self, events: Iterable[executor_pb2.TrajectoryEvent]
    ) -> Iterator[tuple[int, trajectory_pb2.Trajectory]]:
        """Trajectories that are whole and new, with their cursors."""
        for event in events:
            trajectory = self._read(event)
            if trajectory is not None and event.cursor > self._newest:
                self._newest = event.cursor
                yield event.cursor, trajectory

    @property
    def within_parts(self) -> bool:
        """Whether further parts of a trajectory are to come: its cursor is not acked before."""
        return bool(self._parts)

    def restart(self) -> None:
        """The stream broke: a trajectory whose parts were coming comes again from its first part."""
        self._parts.clear()

    def _read(self, event: executor_pb2.TrajectoryEvent) -> trajectory_pb2.Trajectory | None:
        match event.WhichOneof("event"):
            case "trajectory":
                return event.trajectory
            case "part":
                self._parts += event.part.data
                if event.part.last:
                    whole, self._parts = bytes(self._parts), bytearray()
                    return trajectory_pb2.Trajectory.FromString(whole)
        return None
