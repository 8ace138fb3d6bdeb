"""A stage's settings with the protocol's defaults filled in, and its learning rate over time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from practicum.v1 import trainer_pb2

# The factor of the base learning rate, by the steps made before, from 0.
Schedule: TypeAlias = Callable[[int], float]


@dataclass(frozen=True, slots=True)
class GrpoSettings:
    """See `GrpoStage` in trainer.proto."""

    steps: int
    groups_per_step: int
    group_size: int
    learning_rate: float
    final_learning_rate_ratio: float
    max_staleness: int
    max_concurrent_groups: int
    clip: float
    importance_weight_cap: float
    beta2: float
    checkpoint_every: int
    probe: bool

    @classmethod
    def of(cls, stage: trainer_pb2.GrpoStage) -> GrpoSettings:
        """From the message."""
        return cls(
            steps=stage.steps,
            groups_per_step=stage.groups_per_step,
            group_size=stage.group_size,
            learning_rate=stage.learning_rate,
            final_learning_rate_ratio=given(stage, "final_learning_rate_ratio", 1.0),
            max_staleness=stage.max_staleness,
            max_concurrent_groups=stage.max_concurrent_groups or 3 * stage.groups_per_step,
            clip=given(stage, "clip", 0.2),
            importance_weight_cap=given(stage, "importance_weight_cap", 5.0),
            beta2=given(stage, "beta2", 0.99),
            checkpoint_every=stage.checkpoint_every or 10,
            probe=stage.probe if stage.HasField("probe") else True,
        )


def given(stage: trainer_pb2.GrpoStage, field: str, default: float) -> float:
    """A field that 0 is a value of, or its default when it is absent."""
    return float(getattr(stage, field)) if stage.HasField(field) else default  # type: ignore[arg-type]


def linear_decay(step: int, *, steps: int, final_ratio: float) -> float:
    """From 1 at the first step, in a straight line, towards `final_ratio` after the last."""
    return 1.0 - (1.0 - final_ratio) * min(step, steps) / max(steps, 1)


def warm_up_and_decay(step: int, *, steps: int, warm_up: int = 10, decay_share: float = 0.4) -> float:
    """Rises over the first `warm_up` steps, and falls over the last `decay_share` of them to a tenth."""
    rising = min(1.0, (step + 1) / max(warm_up, 1))
    falling = min(1.0, max(0.1, (steps - step) / max(steps * decay_share, 1)))
    return rising * falling
