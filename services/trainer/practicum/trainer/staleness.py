"""How old the tokens are that a step trains on, counted in optimiser steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from practicum.trainer.rows import Ints, Row


class AbandonedVersion(ValueError):
    """A token was sampled by weights that this run gave up when it went back to a checkpoint, or never had."""


class Lineage:
    """Which optimiser step made which policy version. Versions of the proxy only rise, also when a run goes back to
    a checkpoint; steps go back. Versions in between are missing here: their weights were given up."""

    def __init__(self, steps: Mapping[int, int] | None = None) -> None:
        self._steps = dict(steps or {})

    def add(self, version: int, step: int) -> None:
        """Notes that `version` holds the weights after `step` steps."""
        self._steps[version] = step

    def recent(self, count: int) -> dict[int, int]:
        """The last versions, for a checkpoint."""
        return dict(sorted(self._steps.items())[-count:])

    def steps_of(self, row: Row) -> Ints:
        """The row's versions as steps; -1 where nothing was sampled."""
        steps = row.versions.copy()
        for version in np.unique(row.versions[row.loss_mask > 0]).tolist():
            if version not in self._steps:
                raise AbandonedVersion(f"policy version {version} is none of this run's")
            steps[row.versions == version] = self._steps[version]
        return steps


def oldest(steps: Iterable[Ints]) -> int:
    """The lowest step that sampled any token."""
    return min(int(row[row >= 0].min()) for row in steps)


def histogram(steps: Iterable[Ints], *, now: int) -> list[int]:
    """Tokens by staleness: index is staleness, value is tokens. `now`: steps made before this one."""
    ages = np.concatenate([now - row[row >= 0] for row in steps])
    return np.bincount(np.clip(ages, 0, None)).tolist()


def added(first: list[int], second: list[int]) -> list[int]:
    """The sum of two histograms."""
    length = max(len(first), len(second))
    pad = [list(values) + [0] * (length - len(values)) for values in (first, second)]
    return [a + b for a, b in zip(*pad, strict=True)]
