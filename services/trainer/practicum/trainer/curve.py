"""Draws the learning curve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

Event = dict[str, Any]


def draw(events: list[Event], path: Path) -> None:
    """Reward and staleness of each step of GRPO, the loss of fine-tuning, and held-out success where it was
    measured; steps of all stages on one axis. A step that was made twice, after a restart, counts as made last."""
    figure = Figure(figsize=(9, 6), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    steps, marks = along_one_axis(events)
    practised = [(x, step) for x, step in steps if "staleness_tokens" in step]
    tuned = [(x, step) for x, step in steps if "staleness_tokens" not in step]
    above.plot([x for x, _ in practised], [step.get("reward", 0.0) for _, step in practised], label="reward")
    for name in dict.fromkeys(mark["name"] for _, mark in marks):
        chosen = [(x, mark["success"]) for x, mark in marks if mark["name"] == name]
        above.plot([x for x, _ in chosen], [success for _, success in chosen], "o", label=f"held out, {name}")
    above.set_ylim(-0.03, 1.03)
    above.set_ylabel("reward")
    above.legend(loc="upper left")
    below.plot([x for x, _ in practised], [staleness(step) for _, step in practised], label="mean staleness")
    below.plot([x for x, _ in tuned], [step.get("loss", 0.0) for _, step in tuned], label="fine-tuning loss")
    below.set_xlabel("optimiser step, all stages")
    below.legend(loc="upper right")
    figure.savefig(path, dpi=110)


def along_one_axis(events: list[Event]) -> tuple[list[tuple[int, Event]], list[tuple[int, Event]]]:
    """Steps and measurements with their place on the axis."""
    starts: dict[str, int] = {}
    steps: dict[int, Event] = {}
    marks: list[tuple[int, Event]] = []
    last = 0
    for event in events:
        if "step" in event:
            start = starts.setdefault(event["stage"], last)
            last = start + event["step"]["step"]
            steps[last] = event["step"]
        elif tasks := event.get("evaluation", {}).get("tasks"):
            success = event["evaluation"].get("successes", 0) / tasks
            marks.append((last, {"name": measurement(event["evaluation"]), "success": success}))
    return sorted(steps.items()), marks


def measurement(evaluation: Event) -> str:
    """How it was measured."""
    temperature = evaluation.get("temperature", 0.0)
    name = "greedy" if temperature == 0 else f"temperature {temperature:g}"
    return f"{name}, tools hidden" if evaluation.get("tools_hidden") else name


def staleness(step: Event) -> float:
    """Mean staleness of the step's tokens."""
    tokens = [int(count) for count in step["staleness_tokens"]]
    return sum(age * count for age, count in enumerate(tokens)) / max(sum(tokens), 1)
