"""Runs of the trainer in tests: their specs, and what is heard of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import psutil

from practicum.environments.boxes.model import TOOLS, make_model, make_tokenizer
from practicum.v1 import message_pb2, trainer_pb2, trainer_pb2_grpc, trajectory_pb2

SIMULATED = trainer_pb2.TRAINER_BACKEND_SIMULATED
Stub = trainer_pb2_grpc.TrainerServiceStub


@contextmanager
def trainer_door(address: str) -> Iterator[Stub]:
    """The trainer's calls."""
    with grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        grpc.channel_ready_future(channel).result(timeout=30)
        yield Stub(channel)


def write_model(folder: Path) -> Path:
    """The quickstart's model, untrained."""
    tokenizer = make_tokenizer()
    make_model(tokenizer, seed=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def lesson(number: int) -> trajectory_pb2.Trajectory:
    """A stored trajectory to learn from: one call and an answer."""
    call = message_pb2.ToolCall(call_id="c", name="box__open", arguments_json=json.dumps({"id": 10 + number}))
    return trajectory_pb2.Trajectory(
        task_id=f"lesson{number}",
        rollout_id=f"lesson{number}/0",
        labels={"lesson": "yes"},
        instruction=f"open box {10 + number}",
        tools_json=json.dumps(TOOLS),
        outcome=trajectory_pb2.OUTCOME_FINISHED,
        final_answer="42",
        steps=[
            trajectory_pb2.Step(
                action=message_pb2.Action(tool_calls=[call]), observations=[message_pb2.Observation(text="coin 42")]
            ),
            trajectory_pb2.Step(action=message_pb2.Action(text="<answer>42</answer>")),
        ],
    )


def task_file(folder: Path, count: int = 12) -> str:
    """A file of tasks; their instructions differ in length."""
    path = folder / "tasks.jsonl"
    lines = [json.dumps({"instruction": "x" * (index + 1), "agent": {"kind": "toy"}}) for index in range(count)]
    path.write_text("\n".join(lines))
    return str(path)


def run_spec(folder: Path, model: Path, *stages: trainer_pb2.Stage, **fields: Any) -> trainer_pb2.RunSpec:
    """A spec of these stages."""
    fields = {"run_id": "run", "seed": 1} | fields
    return trainer_pb2.RunSpec(model_path=str(model), output_path=str(folder / "out"), stages=stages, **fields)


def evaluation(tasks: str, name: str = "measure", **fields: Any) -> trainer_pb2.Stage:
    fields = {"temperatures": [1.0]} | fields
    return trainer_pb2.Stage(name=name, evaluate=trainer_pb2.EvaluateStage(tasks_path=tasks, **fields))


def tuning(**fields: Any) -> trainer_pb2.Stage:
    fields = {"trajectories": 8, "steps": 3, "batch_size": 4, "learning_rate": 1e-4} | fields
    return trainer_pb2.Stage(name="sft", sft=trainer_pb2.SftStage(labels={"lesson": "yes"}, **fields))


def practice(tasks: str, name: str = "rl", **fields: Any) -> trainer_pb2.Stage:
    fields = {
        "steps": 6,
        "groups_per_step": 4,
        "group_size": 4,
        "learning_rate": 2e-3,
        "max_staleness": 2,
        "checkpoint_every": 2,
    } | fields
    return trainer_pb2.Stage(name=name, grpo=trainer_pb2.GrpoStage(tasks_path=tasks, **fields))


def start(stub: Stub, spec: trainer_pb2.RunSpec) -> trainer_pb2.Run:
    return stub.StartRun(trainer_pb2.StartRunRequest(spec=spec), timeout=30).run


def heard(stub: Stub, *, since: int = 1, timeout: float = 120) -> Iterator[trainer_pb2.RunEvent]:
    """Events of the run, live until it ends."""
    request = trainer_pb2.WatchRunRequest(run_id="run", from_sequence=since)
    for response in stub.WatchRun(request, timeout=timeout):
        yield from response.events


def until_step(stub: Stub, step: int, *, since: int = 1, timeout: float = 120) -> trainer_pb2.RunEvent:
    """The first event of at least this step of the stage `rl`."""
    for event in heard(stub, since=since, timeout=timeout):
        if event.stage == "rl" and event.step.step >= step:
            return event
    raise AssertionError(f"the run ended before step {step}: {story(stub)}")


def ended(stub: Stub, *, timeout: float = 120) -> tuple[trainer_pb2.Run, list[trainer_pb2.RunEvent]]:
    """Waits until the run ended; how it stands, and all that was heard of it."""
    events = list(heard(stub, timeout=timeout))
    return story(stub), events


def story(stub: Stub) -> trainer_pb2.Run:
    return stub.GetRun(trainer_pb2.GetRunRequest(run_id="run"), timeout=30).run


def steps_of(events: list[trainer_pb2.RunEvent], stage: str = "rl") -> list[trainer_pb2.StepMetrics]:
    return [event.step for event in events if event.stage == stage and event.HasField("step")]


def children(pid: int) -> list[psutil.Process]:
    """Processes that another one started, and theirs."""
    return psutil.Process(pid).children(recursive=True)


def wait_gone(processes: list[psutil.Process], seconds: float = 40) -> None:
    """Until none of the processes is left."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    assert not alive, alive


def wait_for(condition: Any, seconds: float = 60) -> None:
    """Until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
