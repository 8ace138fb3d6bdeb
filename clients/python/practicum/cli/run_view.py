"""A training run as its events tell it: progress, reward, staleness, measurements."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table

from practicum.cli.tables import bar, nodes_table, table
from practicum.v1 import executor_pb2, trainer_pb2


@dataclass
class RunView:
    """What is known so far."""

    state: trainer_pb2.RunState.ValueType = trainer_pb2.RUN_STATE_UNSPECIFIED
    stage: str = ""
    step: trainer_pb2.StepMetrics = field(default_factory=trainer_pb2.StepMetrics)
    practice: list[trainer_pb2.StepMetrics] = field(default_factory=list)
    measurements: list[tuple[str, trainer_pb2.EvaluationResult]] = field(default_factory=list)
    note: str = ""
    _began: float = field(default_factory=time.monotonic)

    def add(self, event: trainer_pb2.RunEvent) -> None:
        """Takes an event in."""
        match event.WhichOneof("event"):
            case "state":
                self.state = event.state
            case "stage_started":
                self.stage = event.stage
                self.step = trainer_pb2.StepMetrics(steps=event.stage_started.steps)
            case "step":
                self.step = event.step
                if event.step.staleness_tokens:
                    self.practice.append(event.step)
            case "evaluation":
                self.measurements.append((event.stage, event.evaluation))
            case "note":
                self.note = event.note

    @property
    def line(self) -> str:
        """How it stands, in a line."""
        step = self.step
        parts = [f"{time.monotonic() - self._began:4.0f} s", self.stage or "starting"]
        if step.steps:
            parts.append(f"step {step.step}/{step.steps}")
        if step.staleness_tokens:
            parts.append(f"reward {step.reward:.2f}, staleness {mean_staleness([step]):.1f}")
        if step.step:
            parts.append(f"loss {step.loss:.3f}")
        return " · ".join([*parts, *([self.note] if self.note else [])])

    def picture(self, nodes: Iterable[executor_pb2.NodeInfo], rate: float) -> Group:
        """How it stands, with the nodes and how many rollouts end a second."""
        progress = ProgressBar(max(self.step.steps, 1), self.step.step, width=60)
        rewards = " ".join(f"{step.reward:.2f}" for step in self.practice[-12:])
        lines = [f"rollouts a second: {rate:.0f}", *([f"reward of the last steps: {rewards}"] if rewards else [])]
        return Group(self.line, progress, *lines, nodes_table(nodes), self.measured())

    def measured(self) -> Table:
        """Success on held-out tasks."""
        made = table("held-out success", "#greedy", "#sampled", "#tasks")
        for stage in dict.fromkeys(stage for stage, _ in self.measurements):
            of = {result.temperature: result for name, result in self.measurements if name == stage}
            tasks = max(result.tasks for result in of.values())
            made.add_row(stage, share(of.get(0.0)), share(of.get(1.0)), str(tasks))
        return made

    def success(self, stage: str, temperature: float) -> float | None:
        """A measurement; None when it was not made."""
        for name, result in self.measurements:
            if (name, result.temperature) == (stage, temperature) and result.tasks:
                return result.successes / result.tasks
        return None

    def staleness(self) -> Table:
        """Trained tokens by staleness."""
        counts = totals(self.practice)
        made = table("staleness (versions)", "#tokens", "share")
        for versions, tokens in enumerate(counts):
            part = tokens / max(sum(counts), 1)
            made.add_row(str(versions), str(tokens), f"{bar(part, 20)} {part:.0%}")
        return made

    @property
    def stale_share(self) -> float:
        """Share of trained tokens that are one version old or older."""
        counts = totals(self.practice)
        return 1 - counts[0] / sum(counts) if sum(counts) else 0.0

    @property
    def overlap_share(self) -> float:
        """Share of training time during which rollouts were running."""
        trained = sum(step.train_seconds for step in self.practice)
        return sum(step.overlap_seconds for step in self.practice) / trained if trained else 0.0

    @property
    def trainer_idle_share(self) -> float:
        """Share of the practice's time in which the trainer waited for trajectories."""
        steps = self.practice
        waited = sum(step.wait_seconds for step in steps)
        busy = sum(step.train_seconds + step.update_seconds for step in steps)
        return waited / (waited + busy) if waited + busy else 0.0


def share(result: trainer_pb2.EvaluationResult | None) -> str:
    """Successes in percent."""
    return f"{result.successes / result.tasks:.1%}" if result is not None and result.tasks else ""


def totals(steps: Iterable[trainer_pb2.StepMetrics]) -> list[int]:
    """Tokens by staleness, of all steps."""
    counts: list[int] = []
    for step in steps:
        counts += [0] * (len(step.staleness_tokens) - len(counts))
        for versions, tokens in enumerate(step.staleness_tokens):
            counts[versions] += tokens
    return counts


def mean_staleness(steps: Iterable[trainer_pb2.StepMetrics]) -> float:
    """In versions, over tokens."""
    counts = totals(steps)
    return sum(versions * tokens for versions, tokens in enumerate(counts)) / max(sum(counts), 1)
