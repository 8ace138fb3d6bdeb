"""Real AReaL in a run's process, with a toy executor and proxy that sample with transformers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.services import Service, Services
from support.toy_neighbours import Toy, toy_neighbours
from support.training import (
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
    wait_gone,
    write_model,
)

from practicum.v1 import trainer_pb2

pytestmark = [pytest.mark.areal, pytest.mark.timeout(600)]  # Each start imports AReaL: 11 to 38 s.


@pytest.fixture(scope="module")
def boxes_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def toy(boxes_model: Path) -> Iterator[tuple[Toy, str]]:
    with toy_neighbours(lambda: Toy(boxes_model)) as neighbours:
        yield neighbours


@pytest.fixture
def trainer(toy: tuple[Toy, str], services: Services, tmp_path: Path) -> Service:
    flags = ("--executor", toy[1], "--inference", toy[1], "--state", str(tmp_path / "state"))
    return services.start("trainer", *flags)


@pytest.fixture
def stub(trainer: Service) -> Iterator[Stub]:
    with trainer_door(trainer.address) as stub:
        yield stub


def test_areal_learns_over_a_kill_and_a_stop(
    stub: Stub, trainer: Service, toy: tuple[Toy, str], boxes_model: Path, tmp_path: Path
) -> None:
    """Fine-tuned, then practised: killed after a checkpoint it goes on by itself, stopped it goes on when told."""
    toy[0].stored += [lesson(number) for number in range(32)]
    tasks = task_file(tmp_path)
    stages = [
        tuning(trajectories=32, steps=12, batch_size=16, learning_rate=2e-3),
        practice(tasks, steps=16, group_size=8, checkpoint_every=3),
        evaluation(tasks, "after"),
    ]
    spec = run_spec(tmp_path, boxes_model, *stages)
    start(stub, spec)
    killed = until_step(stub, 5, timeout=240)
    for process in children(trainer.pid):
        process.kill()
    until_step(stub, 8, since=killed.sequence + 1, timeout=240)
    processes = children(trainer.pid)
    run = stub.StopRun(trainer_pb2.StopRunRequest(run_id="run"), timeout=60).run
    assert run.state == trainer_pb2.RUN_STATE_STOPPED and run.step >= 8
    wait_gone(processes)
    before = len(list(heard(stub)))
    start(stub, spec)
    assert until_step(stub, 1, since=before + 1, timeout=240).step.step == run.step + 1
    run, events = ended(stub, timeout=240)
    assert (run.state, run.detail) == (trainer_pb2.RUN_STATE_SUCCEEDED, "")
    tuned, steps = steps_of(events, "sft"), steps_of(events)
    assert tuned[-1].loss < 0.7 * tuned[0].loss
    went_on = next(event.note for event in events if event.note.startswith("went on"))
    assert went_on in ("went on from step 3 of stage rl", "went on from step 6 of stage rl")
    assert {step.step for step in steps} == set(range(1, 17))
    assert steps[0].reward < 0.7 < 0.8 < steps[-1].reward
    assert all(step.probe_kl < 1e-3 for step in steps)
    # Whole groups only; none is older than it may be, and some were trained on while others ran.
    assert all(sum(step.staleness_tokens) == 4 * 8 * 8 and len(step.staleness_tokens) <= 3 for step in steps)
    assert sum(sum(step.staleness_tokens[1:]) for step in steps) > 0
    assert sum(step.overlap_seconds for step in steps) > 0
    # Sampled and trained log-probabilities of packed sequences agree where nothing is stale.
    assert steps[0].metrics["ppo_actor/update/compute_logp/kl_div_taylor/max"] < 1e-6
    assert toy[0].versions == sorted(set(toy[0].versions))


def test_a_probe_stops_a_run_whose_engine_serves_something_else(
    stub: Stub, toy: tuple[Toy, str], boxes_model: Path, tmp_path: Path
) -> None:
    """From the third version on the engine's scores are off by a hundredth."""
    toy[0].wrong_from = 3
    start(stub, run_spec(tmp_path, boxes_model, practice(task_file(tmp_path), learning_rate=0)))
    run, _ = ended(stub, timeout=240)
    assert run.state == trainer_pb2.RUN_STATE_FAILED
    assert run.detail.startswith("engine and trainer disagree on policy version 3: |approximate KL| is 0.01")
    assert story(stub).step == 1 and len(list(heard(stub))) > 0
