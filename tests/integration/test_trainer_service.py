"""The trainer's service with runs of the simulated trainer: real processes, a toy executor and proxy."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from support.services import Service, Services, unused_address
from support.toy_neighbours import Toy, toy_neighbours
from support.training import (
    SIMULATED,
    Stub,
    children,
    ended,
    evaluation,
    heard,
    lesson,
    practice,
    run_spec,
    start,
    steps_of,
    story,
    task_file,
    trainer_door,
    tuning,
    until_step,
    wait_for,
    wait_gone,
    write_model,
)

from practicum.v1 import trainer_pb2

pytestmark = pytest.mark.areal  # For torch, in the toy.
SUCCEEDED, FAILED = trainer_pb2.RUN_STATE_SUCCEEDED, trainer_pb2.RUN_STATE_FAILED
STOPPED, RUNNING = trainer_pb2.RUN_STATE_STOPPED, trainer_pb2.RUN_STATE_RUNNING


@pytest.fixture(scope="module")
def boxes_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def neighbours(boxes_model: Path) -> Iterator[tuple[Toy, str]]:
    with toy_neighbours(lambda: Toy(boxes_model)) as neighbours:
        yield neighbours


@pytest.fixture
def trainer(neighbours: tuple[Toy, str], services: Services, tmp_path: Path) -> Service:
    address = neighbours[1]
    flags = ("--executor", address, "--inference", address, "--state", str(tmp_path / "state"))
    return services.start("trainer", *flags)


@pytest.fixture
def stub(trainer: Service) -> Iterator[Stub]:
    with trainer_door(trainer.address) as stub:
        yield stub


@pytest.fixture
def tasks(tmp_path: Path) -> str:
    return task_file(tmp_path)


def endless(tasks: str) -> trainer_pb2.Stage:
    return practice(tasks, steps=10_000)


def test_a_recipe_is_carried_out_in_order(
    stub: Stub, neighbours: tuple[Toy, str], boxes_model: Path, tmp_path: Path, tasks: str
) -> None:
    """Measured, tuned, practised, measured; every version is published once, staleness is bounded, files are left."""
    toy = neighbours[0]
    toy.stored += [lesson(number) for number in range(8)]
    stages = [evaluation(tasks, "before"), tuning(), practice(tasks), evaluation(tasks, "after")]
    spec = run_spec(tmp_path, boxes_model, *stages, backend=SIMULATED)
    assert start(stub, spec).state == RUNNING
    run, events = ended(stub)
    assert (run.state, run.stage, run.detail) == (SUCCEEDED, "after", "")
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.stage for event in events if event.HasField("stage_started")] == ["before", "sft", "rl", "after"]
    steps = steps_of(events)
    assert [step.step for step in steps] == [1, 2, 3, 4, 5, 6]
    assert all(sum(step.staleness_tokens) == 4 * 4 * 8 and len(step.staleness_tokens) <= 3 for step in steps)
    assert [step.policy_version for step in steps] == [3, 4, 5, 6, 7, 8]
    assert toy.versions == list(range(1, 9))
    measured = [event.evaluation for event in events if event.HasField("evaluation")]
    assert [(result.tasks, result.policy_version) for result in measured] == [(12, 1), (12, 8)]
    assert {"metrics.jsonl", "summary.json", "learning_curve.png", "model"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    assert start(stub, spec).state == SUCCEEDED


def test_a_stopped_run_leaves_no_process_and_goes_on_where_it_was(
    stub: Stub, trainer: Service, boxes_model: Path, tmp_path: Path, tasks: str
) -> None:
    """StopRun keeps a checkpoint of the last step; versions go on rising."""
    spec = run_spec(tmp_path, boxes_model, endless(tasks), backend=SIMULATED)
    start(stub, spec)
    until_step(stub, 3)
    processes = children(trainer.pid)
    assert processes
    run = stub.StopRun(trainer_pb2.StopRunRequest(run_id="run"), timeout=60).run
    assert run.state == STOPPED
    wait_gone(processes)
    events = list(heard(stub))
    assert stub.StopRun(trainer_pb2.StopRunRequest(run_id="run"), timeout=60).run.state == STOPPED
    assert start(stub, spec).state == RUNNING
    first = until_step(stub, 1, since=len(events) + 1).step
    assert (first.step, first.policy_version > run.policy_version) == (run.step + 1, True)


def test_a_recipe_may_practise_twice(stub: Stub, boxes_model: Path, tmp_path: Path, tasks: str) -> None:
    """The second stage begins at once after the first, while the proxy still remembers what that had closed."""
    stages = [practice(tasks, steps=2), practice(tasks, "again", steps=2)]
    start(stub, run_spec(tmp_path, boxes_model, *stages, backend=SIMULATED))
    run, events = ended(stub)
    assert (run.state, run.detail) == (SUCCEEDED, "")
    assert [step.step for name in ("rl", "again") for step in steps_of(events, name)] == [1, 2, 1, 2]


def test_fine_tuning_says_what_it_waits_for(
    stub: Stub, neighbours: tuple[Toy, str], boxes_model: Path, tmp_path: Path
) -> None:
    """A note tells how many trajectories there are; when the rest is stored, it goes on."""
    toy = neighbours[0]
    toy.stored += [lesson(number) for number in range(3)]
    start(stub, run_spec(tmp_path, boxes_model, tuning(), backend=SIMULATED))
    assert next(event.note for event in heard(stub) if event.note) == "waits for trajectories: 3 of 8 are stored"
    toy.add(lesson(number) for number in range(3, 8))
    assert ended(stub)[0].state == SUCCEEDED


def test_a_killed_run_goes_on_from_its_checkpoint_by_itself(
    stub: Stub, trainer: Service, boxes_model: Path, tmp_path: Path, tasks: str
) -> None:
    """kill -9 of its process costs the steps since the checkpoint, which is made every second step here."""
    start(stub, run_spec(tmp_path, boxes_model, endless(tasks), backend=SIMULATED))
    before = until_step(stub, 3)
    (process,) = children(trainer.pid)
    process.kill()
    events = heard(stub, since=before.sequence + 1)
    note = next(event.note for event in events if event.note)
    assert "signal 9" in note
    again = next(event.step for event in events if event.HasField("step"))
    assert again.step % 2 == 1 and story(stub).state == RUNNING


def test_a_killed_trainer_goes_on_with_its_runs_when_it_is_back(
    trainer: Service, boxes_model: Path, tmp_path: Path, tasks: str
) -> None:
    """The run's process ends with the trainer, keeps a checkpoint, and is started again from it."""
    with trainer_door(trainer.address) as stub:
        start(stub, run_spec(tmp_path, boxes_model, endless(tasks), backend=SIMULATED))
        before = until_step(stub, 3)
    processes = children(trainer.pid)
    trainer.kill()
    wait_gone(processes)
    trainer.launch()
    trainer.wait_serving()
    with trainer_door(trainer.address) as stub:
        again = until_step(stub, 1, since=before.sequence + 1)
        assert again.sequence > before.sequence and again.step.step > 1
        assert again.step.policy_version > before.step.policy_version


def test_a_terminated_trainer_stops_its_runs_and_leaves_no_process(
    trainer: Service, boxes_model: Path, tmp_path: Path, tasks: str
) -> None:
    """Whoever watches hears that they stopped; started again, the trainer waits to be told."""
    with trainer_door(trainer.address) as stub:
        start(stub, run_spec(tmp_path, boxes_model, endless(tasks), backend=SIMULATED))
        event = until_step(stub, 1)
        watch = heard(stub, since=event.sequence)
        assert next(watch).sequence == event.sequence
        processes = children(trainer.pid)
        os.kill(trainer.pid, signal.SIGTERM)
        assert [event.state for event in watch if event.state][-1] == STOPPED
    assert trainer.process is not None and trainer.process.wait(30) == 0
    wait_gone(processes)
    trainer.launch()
    trainer.wait_serving()
    with trainer_door(trainer.address) as stub:
        assert story(stub).state == STOPPED and not children(trainer.pid)


def test_infrastructure_errors_reject_groups_and_are_never_zeros(
    stub: Stub, neighbours: tuple[Toy, str], boxes_model: Path, tmp_path: Path, tasks: str
) -> None:
    """Rewards are of whole groups alone; what was rejected is counted."""
    neighbours[0].failing = 0.1
    start(stub, run_spec(tmp_path, boxes_model, practice(tasks, steps=4), backend=SIMULATED))
    run, events = ended(stub)
    steps = steps_of(events)
    assert run.state == SUCCEEDED
    assert steps[-1].rejected_groups > 0
    assert all(sum(step.staleness_tokens) == 4 * 4 * 8 and step.reward > 0.2 for step in steps)


def test_a_run_fails_with_the_reason_when_every_group_is_rejected(
    stub: Stub, neighbours: tuple[Toy, str], boxes_model: Path, tmp_path: Path, tasks: str
) -> None:
    """Here because the tokens are another tokenizer's: waiting longer would not mend it."""
    neighbours[0].digest = "sha256:another"
    start(stub, run_spec(tmp_path, boxes_model, practice(tasks), backend=SIMULATED))
    run, _ = ended(stub)
    assert run.state == FAILED
    assert "32 groups in a row were rejected" in run.detail and "'sha256:another'" in run.detail


def test_a_run_fails_when_a_measurement_is_out_of_bounds(
    stub: Stub, boxes_model: Path, tmp_path: Path, tasks: str
) -> None:
    """So that nothing is practised on a model that has nothing to learn from."""
    start(stub, run_spec(tmp_path, boxes_model, evaluation(tasks, fail_below=0.5), backend=SIMULATED))
    run, _ = ended(stub)
    assert run.state == FAILED
    assert run.detail == "stage measure: 0 of 12 tasks succeeded (0.0%), which is below the bound of 50.0%"


def test_a_run_finds_whichever_of_several_executors_answers(
    services: Services, neighbours: tuple[Toy, str], boxes_model: Path, tmp_path: Path, tasks: str
) -> None:
    """Here nobody is at the address of the first."""
    addresses = f"{unused_address()},{neighbours[1]}"
    flags = ("--executor", addresses, "--inference", neighbours[1], "--state", str(tmp_path / "state"))
    with trainer_door(services.start("trainer", *flags).address) as stub:
        start(stub, run_spec(tmp_path, boxes_model, evaluation(tasks), backend=SIMULATED))
        assert ended(stub)[0].state == SUCCEEDED


def test_wrong_requests_are_refused_with_their_reasons(
    stub: Stub, boxes_model: Path, tmp_path: Path, tasks: str
) -> None:
    """An unknown run, a wrong spec, an id that is taken, one run too many."""
    spec = run_spec(tmp_path, boxes_model, endless(tasks), backend=SIMULATED)
    assert refusal(lambda: story(stub)) == (grpc.StatusCode.NOT_FOUND, "RUN_UNKNOWN")
    wrong = trainer_pb2.RunSpec()
    wrong.CopyFrom(spec)
    wrong.model_path = "/no/such"
    assert refusal(lambda: start(stub, wrong)) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD")
    Path(tasks).write_text(Path(tasks).read_text() + "\n{")
    with pytest.raises(grpc.RpcError, match=r"stages\[0\]\.grpo\.tasks_path.*tasks\.jsonl:13 is not a"):
        start(stub, spec)
    task_file(tmp_path)
    start(stub, spec)
    other = trainer_pb2.RunSpec()
    other.CopyFrom(spec)
    other.seed = 2
    assert refusal(lambda: start(stub, other)) == (grpc.StatusCode.ALREADY_EXISTS, "RUN_ID_REUSED")
    other.run_id = "other"
    assert refusal(lambda: start(stub, other)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "CAPACITY")
    listed = stub.ListRuns(trainer_pb2.ListRunsRequest(), timeout=30).runs
    assert [run.spec.run_id for run in listed] == ["run"]
    wait_for(lambda: story(stub).step > 0)


def refusal(call: object) -> tuple[grpc.StatusCode, str]:
    """Code and reason of a call that must fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call()  # type: ignore[operator]
    info = error_details_pb2.ErrorInfo()
    details = rpc_status.from_call(caught.value).details
    assert any(detail.Unpack(info) for detail in details)
    return caught.value.code(), info.reason


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--max-runs", "0"], "--max-runs 0: give 1 or more"),
        (["--state", __file__], "is not a folder that can be written"),
        (["--executor", "nowhere"], "'nowhere' is not an address"),
        (["--executor", "127.0.0.1:1, nowhere"], "'nowhere' is not an address"),
    ],
)
def test_a_wrong_flag_is_named_in_one_sentence(services: Services, flags: list[str], told: str) -> None:
    """Exit code 2, and no traceback."""
    service = services.start("trainer", *flags, wait=False)
    assert service.process is not None and service.process.wait(30) == 2
    assert told in service.text and "Traceback" not in service.text


def test_a_state_folder_belongs_to_one_trainer(services: Services, trainer: Service, tmp_path: Path) -> None:
    """The second says so and ends."""
    second = services.start("trainer", "--state", str(tmp_path / "state"), wait=False)
    assert second.process is not None and second.process.wait(30) == 2
    assert "is used by another trainer" in second.text
