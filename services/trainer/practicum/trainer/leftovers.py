"""What a run leaves behind for people, made from its metrics: a summary and the learning curve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from practicum.trainer.context import RunContext

Event = dict[str, Any]
KINDS = ("wait", "train", "update", "overlap")


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
    """Measurements, and what each stage of training came to. A step that was made twice counts as made last."""
    stages: dict[str, dict[int, Event]] = {}
    for event in events:
        if "step" in event:
            stages.setdefault(event["stage"], {})[event["step"]["step"]] = event["step"]
    return {
        "run_id": run_id,
        "evaluations": [{"stage": e["stage"]} | share(e["evaluation"]) for e in events if "evaluation" in e],
        "stages": {stage: told(list(steps.values())) for stage, steps in stages.items()},
    }


def told(steps: list[Event]) -> Event:
    """A stage's steps in a few figures: seconds are sums, idle shares and the rest are over all steps."""
    seconds = {kind: sum(step.get(f"{kind}_seconds", 0.0) for step in steps) for kind in KINDS}
    ages = [tokens for step in steps for tokens in enumerate(map(int, step.get("staleness_tokens", [])))]
    result: Event = {"steps": len(steps), "loss": [steps[0].get("loss", 0.0), steps[-1].get("loss", 0.0)]}
    result |= {f"{kind}_seconds": round(value, 3) for kind, value in seconds.items()}
    if not ages:
        return result
    idle = [name for name in ("idle/trainer", "idle/rollouts") if name in steps[-1].get("metrics", {})]
    return result | {
        "reward": [steps[0].get("reward", 0.0), steps[-1].get("reward", 0.0)],
        "overlap_share": ratio(seconds["overlap"], seconds["train"]),
        "stale_token_share": ratio(sum(count for age, count in ages if age), sum(count for _, count in ages)),
        "most_stale": max(age for age, count in ages if count),
        "rejected_groups": int(steps[-1].get("rejected_groups", 0)),
        "probe_kl": max(step.get("probe_kl", 0.0) for step in steps),
        **{name: ratio(sum(step["metrics"][name] for step in steps), len(steps)) for name in idle},
    }


def ratio(part: float, whole: float) -> float:
    """0 of nothing is 0."""
    return round(part / whole, 4) if whole else 0.0


def share(evaluation: Event) -> Event:
    """The evaluation with its share of successes."""
    tasks = evaluation.get("tasks", 0)
    return evaluation | {"success": evaluation.get("successes", 0) / tasks if tasks else None}
