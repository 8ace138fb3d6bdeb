"""`practicum demo`: scripted agents solve the bundled environment's tasks."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Group
from rich.progress_bar import ProgressBar

from practicum.cli.child import Child
from practicum.cli.failures import Refused
from practicum.cli.folders import claim, made_whole
from practicum.cli.screen import Screen, console, screen
from practicum.cli.suite import Plan, Ports, suite
from practicum.cli.tables import nodes_table, table, trajectories_table
from practicum.client import ExecutorClient, Trajectory, read_tasks

AGENT = "boxes_solver=practicum.environments.boxes.agents:solver"
CONSUMER = "demo"
REFRESH_SECONDS = 0.25


def demo(folder: Path, *, base_port: int, catalogue: Path, tasks: int) -> None:
    """Starts the services, submits the tasks, shows what happens, and stops everything."""
    claim(folder, fresh=True)
    make_tasks(folder / "tasks", solver=tasks)
    plan = Plan(folder, Ports(base_port), catalogue, agents=[AGENT], slots=8)
    with suite(plan) as services, screen() as display:
        services.wait(lambda waiting: display.show(starting(waiting), starting(waiting)))
        display.say("executor, gateway and two nodes are up")
        with ExecutorClient(plan.ports.executor) as executor:
            began = time.monotonic()
            submitted = executor.submit(read_tasks(folder / "tasks" / "solver.jsonl"))
            expected = sum(len(task.rollout_ids) for task in submitted)
            found = watch(executor, expected, display)
            seconds = time.monotonic() - began
    report(found, seconds)


def make_tasks(folder: Path, **counts: int) -> None:
    """Has the bundled environment write its tasks."""
    flags = [part for name, count in counts.items() for part in (f"--{name}", str(count))]
    make("practicum.environments.boxes.tasks", folder, *flags)


def make(module: str, folder: Path, *flags: str) -> None:
    """Has a program of the environment make a folder. Ctrl-C is the command's alone, as with services."""
    with made_whole(folder) as place:
        command = [sys.executable, "-m", module, "--output", str(place), *flags]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, start_new_session=True, check=False)
        if done.returncode:
            raise Refused(f"{module} could not make {folder}:\n{done.stderr[-1000:]}")


def starting(waiting: Sequence[Child]) -> str:
    """What is still awaited."""
    return "starting " + ", ".join(child.name for child in waiting) if waiting else "all services are up"


def watch(executor: ExecutorClient, expected: int, display: Screen) -> list[Trajectory]:
    """Reads trajectories as they come; shows nodes meanwhile."""
    found: list[Trajectory] = []
    show_at = 0.0
    for trajectory in executor.trajectories(CONSUMER):
        found.append(trajectory)
        if time.monotonic() >= show_at or len(found) == expected:
            show_at = time.monotonic() + REFRESH_SECONDS
            line = f"{len(found)} of {expected} rollouts ended, {sum(t.success for t in found)} solved"
            progress = ProgressBar(expected, len(found), width=60)
            display.show(
                Group(line, progress, nodes_table(executor.nodes()), trajectories_table(found[-5:])),
                line,
            )
        if len(found) == expected:
            return found
    return found


def report(found: Sequence[Trajectory], seconds: float) -> None:
    """What came of it."""
    console.print(trajectories_table(found[-5:]))
    console.print()
    made = table("node", "#rollouts", "#solved", "#median seconds")
    of_node = Counter(t.node_id for t in found)
    for node_id in sorted(of_node):
        own = [t for t in found if t.node_id == node_id]
        median = statistics.median(t.execution_time.ToMilliseconds() / 1000 for t in own)
        made.add_row(node_id, str(len(own)), str(sum(t.success for t in own)), f"{median:.3f}")
    solved = sum(t.success for t in found)
    made.add_row("all", str(len(found)), str(solved), "")
    console.print(made)
    console.print(
        f"\n{len(found)} rollouts, each in an environment of its own, in {seconds:.1f} s "
        f"({len(found) / seconds:.0f} a second). Nobody learns here: `make quickstart` has a model practise."
    )
