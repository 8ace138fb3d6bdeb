"""`practicum submit`, `trajectories`, `watch`, `send`: tasks in, trajectories out."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, closing
from pathlib import Path

from google.protobuf import json_format

from practicum.cli.failures import Refused
from practicum.cli.screen import console
from practicum.cli.tables import shorten, trajectories_table
from practicum.client import ExecutorClient, Trajectory, read_tasks, write_trajectories
from practicum.v1 import executor_pb2, message_pb2, task_pb2

# So long a node may take to say that it has no such agent.
ERROR_SECONDS = 1.0


def submit(
    address: str, file: Path | None, *, instruction: str, agent: str, environment: str, rollouts: int, wait: bool
) -> None:
    """Submits a file's tasks, or one that is given by flags."""
    if (file is None) == (not instruction):
        raise Refused("give a file of tasks, or --instruction; not both, and not neither")
    tasks = read_tasks(file) if file is not None else [one_task(instruction, agent, environment)]
    for task in tasks:
        if rollouts:
            task.rollouts = rollouts
    with ExecutorClient(address) as executor:
        submitted = executor.submit(tasks)
        ids = [rollout_id for task in submitted for rollout_id in task.rollout_ids]
        console.print(f"{len(submitted)} tasks with {len(ids)} rollouts are accepted; the first is {ids[0]}")
        if wait:
            console.print(trajectories_table(ended(executor, set(ids))))


def one_task(instruction: str, agent: str, environment: str) -> task_pb2.Task:
    """A task of an instruction."""
    task = task_pb2.Task(instruction=instruction, agent=task_pb2.AgentSpec(kind=agent))
    if environment:
        task.environment.name = environment
    return task


def ended(executor: ExecutorClient, rollout_ids: set[str]) -> list[Trajectory]:
    """Waits for these rollouts."""
    for rollout_id in rollout_ids:
        for _ in executor.watch(rollout_id):
            pass
    return list(executor.query(rollout_ids=sorted(rollout_ids)))


def trajectories(
    address: str,
    *,
    consumer: str,
    labels: list[str],
    queues: list[str],
    min_reward: float | None,
    limit: int,
    output: Path | None,
    as_json: bool,
) -> None:
    """Shows stored trajectories, or follows as a named consumer."""
    where = executor_pb2.TrajectoryFilter(labels=labels_of(labels), queues=queues, min_reward=min_reward)
    with ExecutorClient(address) as executor, ExitStack() as stack:
        if consumer:
            found = stack.enter_context(closing(executor.trajectories(consumer, where=where, limit=limit)))
        else:
            found = stack.enter_context(closing(executor.query(where, limit=limit)))
        if output is not None:
            console.print(f"{write_trajectories(output, found)} trajectories are in {output}")
        elif as_json:
            for trajectory in found:
                sys.stdout.write(json_format.MessageToJson(trajectory, indent=None) + "\n")
                sys.stdout.flush()
        elif consumer:
            for trajectory in found:
                console.print(trajectories_table([trajectory]))
        else:
            console.print(trajectories_table(list(found)))


def watch(address: str, rollout_id: str, *, follow: bool) -> None:
    """Shows a rollout's journal as it is written."""
    with ExecutorClient(address) as executor:
        for message in executor.watch(rollout_id, follow=follow):
            console.print(f"{message.sequence:4} {message.sender:>12}  {told(message)}", soft_wrap=True, markup=False)


def send(address: str, rollout_id: str, text: str, *, to: str | None, topic: str | None, sender: str) -> None:
    """Says something in a rollout."""
    with ExecutorClient(address) as executor:
        patience = ERROR_SECONDS if to else 0.0
        answer = executor.send(rollout_id, text, sender=sender, to=to, topic=topic, patience=patience)
    if answer.HasField("error"):
        raise Refused(f"{answer.error.reason}: {answer.error.detail}")
    console.print(f"said, as message {answer.sequence} of {rollout_id}", markup=False)


def told(message: message_pb2.Message) -> str:
    """A message in a line."""
    match message.WhichOneof("payload"):
        case "action":
            calls = [f"{call.name}({call.arguments_json})" for call in message.action.tool_calls]
            return " ".join([shorten(message.action.text, 200), *calls]).strip()
        case "observation":
            return f"→ {shorten(message.observation.text, 200)}"
        case "task":
            return shorten(message.task.instruction, 200)
        case "error":
            return f"{message.error.reason}: {message.error.detail}"
        case "text":
            return shorten(message.text, 200)
        case "custom_json":
            return shorten(message.custom_json, 200)
    return json.dumps(message.category)


def labels_of(pairs: list[str]) -> dict[str, str]:
    """Labels of options like `stage=sft`."""
    labels = dict(pair.partition("=")[::2] for pair in pairs)
    if not all(labels.values()):
        raise Refused("--label: give KEY=VALUE, such as stage=sft")
    return labels
