"""Which rollouts of a task are still open."""

from __future__ import annotations

from practicum.executor.scheduling.rollouts import Rollout


class Groups:
    """Open rollouts by task. A list for each: groups are small, and a set would cost a rollout of its own 216 bytes."""

    def __init__(self) -> None:
        self._groups: dict[str, list[Rollout]] = {}

    def add(self, rollout: Rollout) -> None:
        """A rollout that has not ended."""
        self._groups.setdefault(rollout.task_id, []).append(rollout)

    def remove(self, rollout: Rollout) -> None:
        """It has ended."""
        group = self._groups[rollout.task_id]
        group.remove(rollout)
        if not group:
            del self._groups[rollout.task_id]

    def open(self, task_id: str) -> list[str]:
        """Ids of the open rollouts of a task, in order."""
        return [rollout.rollout_id for rollout in self._groups.get(task_id, ())]

    def stragglers(self, task_id: str, *, usable: int, after_usable: int) -> list[str]:
        """Those to cut off, since so many of their group ended usable; `after_usable` 0: none ever."""
        return self.open(task_id) if 0 < after_usable <= usable else []
