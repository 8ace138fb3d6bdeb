"""What a run has reached: one small JSON file, replaced as a whole, from which any restart goes on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A stage that was begun. `folder`: weights and optimiser. `lineage`: optimiser steps by policy version, of the
    versions that may still be trained on."""

    step: int
    folder: str
    rejected_groups: int = 0
    lineage: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """`incarnation`: how often the run was started. `stage`: the index of the stage under way. `model`: a folder with
    the weights at its beginning. `version`: the last policy version that the run asked to publish."""

    model: str
    incarnation: int = 0
    stage: int = 0
    version: int = 0
    checkpoint: Checkpoint | None = None


class ProgressFile:
    """The file. Every change is on disk before it counts."""

    def __init__(self, path: Path, *, model: str) -> None:
        """Reads what an earlier start reached, or begins with `model`."""
        self._path = path
        self.now = parse(json.loads(path.read_text())) if path.exists() else Progress(model=model)

    def change(self, **changes: Any) -> None:
        """Replaces fields."""
        self.now = replace(self.now, **changes)
        draft = self._path.with_suffix(".tmp")
        draft.write_text(json.dumps(asdict(self.now), indent=2))
        draft.replace(self._path)


def parse(values: dict[str, Any]) -> Progress:
    """From JSON, whose keys are always text."""
    if values["checkpoint"] is not None:
        lineage = {int(version): step for version, step in values["checkpoint"]["lineage"].items()}
        values["checkpoint"] = Checkpoint(**values["checkpoint"] | {"lineage": lineage})
    return Progress(**values)
