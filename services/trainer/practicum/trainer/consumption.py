"""What a group of trajectories becomes when it is trained on: rows, advantages, and how stale they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from practicum.trainer.groups import Rejected, trainable
from practicum.trainer.rows import NO_VERSION, Ints, Row
from practicum.trainer.staleness import AbandonedVersion, Lineage, oldest
from practicum.v1 import trajectory_pb2


@dataclass(frozen=True, slots=True)
class TrainableGroup:
    """`rows`, and for each of them its `advantage` and the optimiser step that sampled each token (`steps`).
    `rewards`: one for each rollout; rollouts may have several rows."""

    rows: tuple[Row, ...]
    advantages: tuple[float, ...]
    steps: tuple[Ints, ...]
    rewards: tuple[float, ...]

    @property
    def tokens(self) -> int:
        """How many are trained."""
        return sum(int(row.loss_mask.sum()) for row in self.rows)

    @property
    def oldest_step(self) -> int:
        """The step whose weights sampled the oldest token."""
        return oldest(self.steps)


def trainable_group(
    group: Sequence[trajectory_pb2.Trajectory], *, size: int, tokenizer_digest: str, lineage: Lineage
) -> TrainableGroup:
    """The group to train on, or Rejected with the reason."""
    rollouts = trainable(group, size=size, tokenizer_digest=tokenizer_digest)
    rewards = [rollout.reward for rollout in rollouts]
    pairs = [(row, a) for rollout, a in zip(rollouts, centred(rewards), strict=True) for row in rollout.rows]
    rows = tuple(row for row, _ in pairs)
    try:
        steps = tuple(lineage.steps_of(row) for row in rows)
    except AbandonedVersion as error:
        raise Rejected(str(error)) from error
    return TrainableGroup(rows, tuple(advantage for _, advantage in pairs), steps, tuple(rewards))


def padded(group: TrainableGroup) -> dict[str, NDArray[Any]]:
    """AReaL's tensor dict as arrays: [rows, longest row], padded on the right; `rewards` is [rows]."""
    longest = max(len(row.token_ids) for row in group.rows)
    shape = (len(group.rows), longest)
    arrays: dict[str, NDArray[Any]] = {
        "input_ids": np.zeros(shape, dtype=np.int64),
        "attention_mask": np.zeros(shape, dtype=np.bool_),
        "loss_mask": np.zeros(shape, dtype=np.int32),
        "logprobs": np.zeros(shape, dtype=np.float32),
        "versions": np.full(shape, NO_VERSION, dtype=np.int32),
    }
    for index, (row, steps) in enumerate(zip(group.rows, group.steps, strict=True)):
        length = len(row.token_ids)
        arrays["input_ids"][index, :length] = row.token_ids
        arrays["attention_mask"][index, :length] = True
        arrays["loss_mask"][index, :length] = row.loss_mask
        arrays["logprobs"][index, :length] = row.logprobs
        arrays["versions"][index, :length] = steps
    arrays["rewards"] = np.array(group.advantages, dtype=np.float32)
    return arrays


def centred(rewards: Sequence[float]) -> list[float]:
    """Rewards of one group's rollouts minus their mean. Not divided by the standard deviation: with rewards of 0 and
    1 that would weigh the groups that are nearly solved, or nearly hopeless, the most."""
    mean = sum(rewards) / len(rewards)
    return [reward - mean for reward in rewards]


def informative(advantages: Sequence[Sequence[float]], tokens: Sequence[int]) -> tuple[list[int], float]:
    """Which groups of a step have a gradient, and what their advantages are to be multiplied by.

    A group whose rollouts fared alike has none, and costs as much to compute. Without it the loss would be the mean
    over fewer tokens; PPO's loss is linear in the advantages, so scaled ones make it the mean over all of them again.
    `tokens`: trained tokens of each group. One group is named when all fared alike.
    """
    kept = [index for index, group in enumerate(advantages) if any(group)] or [0]
    return kept, sum(tokens[index] for index in kept) / sum(tokens)
