"""Groups: the rollouts of one task, gathered as they end, and judged as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from practicum.trainer.rows import GraphError, Row, rows_of
from practicum.v1 import trajectory_pb2

SCORED = frozenset(
    {trajectory_pb2.OUTCOME_FINISHED, trajectory_pb2.OUTCOME_MAX_STEPS, trajectory_pb2.OUTCOME_AGENT_ERROR}
)


class Rejected(Exception):
    """The group can't be trained on; the text says why. It is never trained as zeros. `passing`: the next may well be
    usable, once what failed is back."""

    def __init__(self, why: str, *, passing: bool = False) -> None:
        super().__init__(why)
        self.passing = passing


class GroupBook:
    """Gathers trajectories until a group is whole. Repeats, and what nobody waits for, change nothing."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self._ended: dict[str, dict[str, trajectory_pb2.Trajectory]] = {}

    def expect(self, task_id: str, size: int) -> None:
        """Waits for a task's group from now on."""
        self._sizes[task_id] = size
        self._ended[task_id] = {}

    def forget(self, task_id: str) -> int:
        """Waits no longer. Returns how many of its rollouts had not ended."""
        return self._sizes.pop(task_id, 0) - len(self._ended.pop(task_id, {}))

    def add(self, trajectory: trajectory_pb2.Trajectory) -> bool:
        """Takes a trajectory. True when it is new and belongs to a group that is waited for."""
        ended = self._ended.get(trajectory.task_id)
        if ended is None or trajectory.rollout_id in ended:
            return False
        ended[trajectory.rollout_id] = trajectory
        return True

    def take(self, task_id: str) -> list[trajectory_pb2.Trajectory] | None:
        """The group, by rollout id, once it is whole; then it is forgotten."""
        ended = self._ended.get(task_id, {})
        if task_id not in self._sizes or len(ended) < self._sizes[task_id]:
            return None
        self.forget(task_id)
        return [ended[rollout_id] for rollout_id in sorted(ended)]


@dataclass(frozen=True, slots=True)
class TrainableRollout:
    """A rollout's reward and its rows."""

    reward: float
    rows: tuple[Row, ...]


def trainable(
    group: Sequence[trajectory_pb2.Trajectory], *, size: int, tokenizer_digest: str
) -> list[TrainableRollout]:
    """The group's rollouts as rows. Raises Rejected unless all `size` of them are usable."""
    if len(group) != size:
        raise Rejected(f"the group has {len(group)} rollouts instead of {size}")
    return [trainable_rollout(trajectory, tokenizer_digest) for trajectory in group]


def trainable_rollout(trajectory: trajectory_pb2.Trajectory, tokenizer_digest: str) -> TrainableRollout:
    """One rollout as rows, or Rejected."""
    if trajectory.outcome not in SCORED:
        outcome = trajectory_pb2.Outcome.Name(trajectory.outcome) if trajectory.outcome in OUTCOMES else "unknown"
        raise Rejected(f"a rollout ended with {outcome} {trajectory.error.reason}".strip(), passing=True)
    for graph in trajectory.token_graphs:
        if graph.tokenizer_digest != tokenizer_digest:
            raise Rejected(f"tokens are of tokenizer {graph.tokenizer_digest!r}, not {tokenizer_digest!r}")
    try:
        rows = tuple(row for graph in trajectory.token_graphs for row in rows_of(graph))
    except GraphError as error:
        raise Rejected(str(error)) from error
    if not rows:
        raise Rejected("a rollout has no sampled tokens")
    # An agent whose own program failed is scored 0, whatever the field holds.
    failed = trajectory.outcome == trajectory_pb2.OUTCOME_AGENT_ERROR
    return TrainableRollout(0.0 if failed else trajectory.reward, rows)


OUTCOMES = frozenset(trajectory_pb2.Outcome.values())
