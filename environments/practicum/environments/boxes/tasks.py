"""Makes task files for the game: `python -m practicum.environments.boxes.tasks --help`.

Files of `practicum.v1.Task` in JSON Lines: `sft.jsonl` for the impatient teacher, `rl.jsonl` to practise on,
`heldout.jsonl` to measure on (no game of it is in these two), `solver.jsonl` for the scripted solver.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path

from google.protobuf import json_format

from practicum.environments.boxes.game import Boxes, draw
from practicum.v1 import task_pb2

MAX_STEPS = 5
MAX_TOKENS_PER_ACTION = 24
GIVE_UP = 0.6


def main() -> None:
    """Writes the files."""
    parser = argparse.ArgumentParser(prog="python -m practicum.environments.boxes.tasks", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="folder for the files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sft", type=int, default=500, help="tasks for the teacher (default: %(default)s)")
    parser.add_argument("--rl", type=int, default=1000, help="tasks to practise on (default: %(default)s)")
    parser.add_argument("--heldout", type=int, default=256, help="tasks to measure on (default: %(default)s)")
    parser.add_argument("--solver", type=int, default=0, help="tasks for the scripted solver (default: none)")
    arguments = parser.parse_args()
    source = random.Random(arguments.seed)
    heldout = distinct(source, arguments.heldout)
    fresh = distinct(source, arguments.rl + arguments.sft, without=heldout)
    name = f"boxes-{arguments.seed}"
    arguments.output.mkdir(parents=True, exist_ok=True)
    write(arguments.output / "heldout.jsonl", heldout, lambda boxes, i: practice(boxes, f"{name}-heldout-{i}"))
    write(arguments.output / "rl.jsonl", fresh[: arguments.rl], lambda boxes, i: practice(boxes, f"{name}-rl-{i}"))
    sft = fresh[arguments.rl : arguments.rl + arguments.sft]
    write(arguments.output / "sft.jsonl", sft, lambda boxes, i: lesson(boxes, f"{name}-sft-{i}", seed=i))
    solved = [draw(source) for _ in range(arguments.solver)]
    write(arguments.output / "solver.jsonl", solved, lambda boxes, i: solution(boxes, f"{name}-solver-{i}"))


def distinct(source: random.Random, count: int, *, without: Iterable[Boxes] = ()) -> list[Boxes]:
    """So many different games, none of them among `without`."""
    taken = set(without)
    games: dict[Boxes, None] = {}
    while len(games) < count:
        boxes = draw(source)
        if boxes not in taken:
            games[boxes] = None
    return list(games)


def practice(boxes: Boxes, task_id: str) -> task_pb2.Task:
    """A task for the model."""
    return task(boxes, task_id, task_pb2.AgentSpec(kind="tool_agent"))


def lesson(boxes: Boxes, task_id: str, *, seed: int) -> task_pb2.Task:
    """A task for the impatient teacher, whose trajectories the model is trained on first."""
    config = json.dumps({"give_up": GIVE_UP, "seed": seed})
    made = task(boxes, task_id, task_pb2.AgentSpec(kind="boxes_teacher", config_json=config))
    made.labels["purpose"] = "sft"
    return made


def solution(boxes: Boxes, task_id: str) -> task_pb2.Task:
    """A task for the scripted solver."""
    return task(boxes, task_id, task_pb2.AgentSpec(kind="boxes_solver"))


def task(boxes: Boxes, task_id: str, agent: task_pb2.AgentSpec) -> task_pb2.Task:
    """The game as a task. What the boxes hold is told to the environment alone."""
    return task_pb2.Task(
        id=task_id,
        instruction=boxes.instruction,
        environment=task_pb2.EnvironmentSpec(name="boxes", parameters_json=boxes.to_json()),
        agent=agent,
        scoring=task_pb2.Scoring(scorer="exact", ground_truth=str(boxes.coin)),
        limits=task_pb2.Limits(max_steps=MAX_STEPS, max_tokens_per_action=MAX_TOKENS_PER_ACTION),
    )


def write(path: Path, games: Iterable[Boxes], make: Callable[[Boxes, int], task_pb2.Task]) -> None:
    """One task a line."""
    lines = [json_format.MessageToJson(make(boxes, index), indent=None) for index, boxes in enumerate(games)]
    path.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
