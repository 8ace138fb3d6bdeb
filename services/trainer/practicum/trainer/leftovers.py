"""What a run leaves behind for people, made from its metrics: a summary and the learning curve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from practicum.trainer.context import RunContext

Event = dict[str, Any]


def leave_behind(context: RunContext) -> None:
    """Writes `summary.json` and `learning_curve.png` into the output folder."""
    events = read_events(context.output / "metrics.jsonl")
    (context.output / "summary.json").write_text(json.dumps(summary(context.spec.run_id, events), indent=2))
    if any("step" in event for event in events):
        from practicum.trainer.curve import draw  # matplotlib takes a second to import.

        draw(events, context.output / "learning_curve.png")


def read_events(path: Path) -> list[Event]:
    """The events of every start of the run, in order. A line that a kill -9 cut short is left out."""
    events = []
    for line in path.read_text().splitlines():
        try:
            events.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return events


def summary(run_id: str, events: list[Event]) -> dict[str, Any]:
    """Measurements, and for each stage of training its first and last step."""
    stages: dict[str, list[Event]] = {}
    for event in events:
        if "step" in event:
            stages.setdefault(event["stage"], []).append(event["step"])
    return {
        "run_id": run_id,
        "evaluations": [{"stage": e["stage"]} | share(e["evaluation"]) for e in events if "evaluation" in e],
        "stages": {stage: {"first": steps[0], "last": steps[-1]} for stage, steps in stages.items()},
    }


def share(evaluation: Event) -> Event:
    """The evaluation with its share of successes."""
    tasks = evaluation.get("tasks", 0)
    return evaluation | {"success": evaluation.get("successes", 0) / tasks if tasks else None}
