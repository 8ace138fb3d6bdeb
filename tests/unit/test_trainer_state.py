"""What a run remembers and counts: events, progress, publications, when rollouts ran, and what is left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from practicum.trainer.accounting import BusyClock, Rejections
from practicum.trainer.inference import check_probe
from practicum.trainer.journal import Journal, frame, run_of, unframe
from practicum.trainer.leftovers import summary
from practicum.trainer.outcome import RunFailed
from practicum.trainer.progress import Checkpoint, ProgressFile
from practicum.trainer.publishing import prune, write_whole
from practicum.v1 import trainer_pb2

RUNNING, FAILED = trainer_pb2.RUN_STATE_RUNNING, trainer_pb2.RUN_STATE_FAILED


def test_frames_that_were_cut_short_are_left_out() -> None:
    """As a kill -9 leaves them."""
    data = frame(b"one") + frame(b"") + frame(b"three")
    assert [list(unframe(data[:end])) for end in (len(data), len(data) - 1, 6)] == [
        [b"one", b"", b"three"],
        [b"one", b""],
        [],
    ]


async def test_events_are_numbered_without_gaps_over_restarts(tmp_path: Path) -> None:
    """Also behind an event that was cut short; a watcher hears all of them, then what comes."""
    journal = Journal(tmp_path / "events")
    journal.append(trainer_pb2.RunEvent(state=RUNNING))
    journal.append(trainer_pb2.RunEvent(note="two"))
    journal.close()
    with (tmp_path / "events").open("ab") as file:
        file.write(frame(b"x" * 30)[:9])
    journal = Journal(tmp_path / "events")
    journal.append(trainer_pb2.RunEvent(note="three"))
    watch = journal.watch(2)
    assert [event.sequence for event in await anext(watch)] == [2, 3]
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    journal.append(trainer_pb2.RunEvent(state=FAILED))
    assert [event.sequence for event in await waiting] == [4]
    journal.close()


def test_a_run_stands_as_its_events_say() -> None:
    """The note right before a failure is its reason; steps count anew in each stage."""
    events = [
        trainer_pb2.RunEvent(state=RUNNING),
        trainer_pb2.RunEvent(stage="rl", stage_started=trainer_pb2.StageStarted(steps=9)),
        trainer_pb2.RunEvent(stage="rl", step=trainer_pb2.StepMetrics(step=3, policy_version=7)),
        trainer_pb2.RunEvent(stage="rl", note="engine and trainer disagree"),
        trainer_pb2.RunEvent(stage="rl", state=FAILED),
    ]
    run = run_of(trainer_pb2.RunSpec(run_id="r"), events)
    assert (run.state, run.stage, run.step, run.policy_version) == (FAILED, "rl", 3, 7)
    assert run.detail == "engine and trainer disagree"
    assert run_of(trainer_pb2.RunSpec(), [*events, trainer_pb2.RunEvent(state=RUNNING)]).detail == ""


def test_progress_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    """JSON's keys are text; versions are numbers."""
    file = ProgressFile(tmp_path / "progress.json", model="m")
    file.change(stage=2, version=9, checkpoint=Checkpoint(step=4, folder="f", lineage={8: 3, 9: 4}))
    again = ProgressFile(tmp_path / "progress.json", model="other").now
    assert again == file.now and again.model == "m" and again.checkpoint is not None
    assert again.checkpoint.lineage == {8: 3, 9: 4}


def test_a_folder_is_whole_or_not_there(tmp_path: Path) -> None:
    """What failed half way leaves nothing under the name, and the next try succeeds."""

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(tmp_path / "v1", fail)
    assert not (tmp_path / "v1").exists()
    write_whole(tmp_path / "v1", lambda folder: (folder / "all").touch())
    assert [file.name for file in (tmp_path / "v1").iterdir()] == ["all"]


def test_only_the_last_versions_are_kept_by_number(tmp_path: Path) -> None:
    """v10 is after v9."""
    for version in (8, 9, 10):
        (tmp_path / f"v{version}").mkdir()
    prune(tmp_path, served=10, keep=2)
    assert {path.name for path in tmp_path.iterdir()} == {"v9", "v10"}


def test_the_version_that_is_served_is_always_kept(tmp_path: Path) -> None:
    """Also in a folder where an earlier run had counted further: the proxy loads it again after an engine's restart."""
    for version in (1, 58, 59, 60):
        (tmp_path / f"v{version}").mkdir()
    prune(tmp_path, served=1, keep=3)
    assert {path.name for path in tmp_path.iterdir()} == {"v1"}


def test_overlap_is_the_time_in_which_rollouts_were_out() -> None:
    """Spans are cut to the time that is asked for; what still runs counts up to its end."""
    now = [0.0]
    clock = BusyClock(lambda: now[0])
    for at, change in ((1.0, 2), (2.0, -1), (3.0, -1), (5.0, 1)):
        now[0] = at
        clock.change(change)
    assert clock.busy(0.0, 10.0) == 7.0
    assert clock.busy(2.5, 5.5) == 1.0


def test_many_rejections_in_a_row_mean_that_something_is_broken() -> None:
    """One accepted group between them starts the row anew; the total goes on."""
    rejections = Rejections(limit=3, patience_seconds=60.0, total=5)
    assert [rejections.add("a", passing=False) for _ in range(2)] == [False, False]
    rejections.accepted()
    assert [rejections.add(why, passing=False) for why in "abb"] == [False, False, True]
    assert rejections.total == 10 and rejections.reasons == {"a": 3, "b": 2}


def test_what_may_pass_ends_a_run_only_after_a_while() -> None:
    """A service that is started again may cost many groups within a second."""
    now = [0.0]
    rejections = Rejections(limit=3, patience_seconds=60.0, now=lambda: now[0])
    assert not any(rejections.add("away", passing=True) for _ in range(50))
    assert rejections.pause_seconds == 2.5
    now[0] = 59.0
    assert not rejections.add("away", passing=True)
    now[0] = 60.0
    assert rejections.add("away", passing=True)


def test_a_probe_stops_a_run_whose_engine_disagrees() -> None:
    """Within a thousandth it is rounding; beyond, or when tokens are missing, the run must not go on."""
    ours = np.full(63, -2.0, dtype=np.float32)
    assert check_probe(ours + np.float32(1e-5), ours, version=3) < 1e-4
    for theirs in (ours + np.float32(0.01), np.full(63, np.nan, dtype=np.float32), ours[:60]):
        with pytest.raises(RunFailed, match="policy version 3"):
            check_probe(theirs, ours, version=3)


def test_a_summary_tells_what_a_stage_came_to() -> None:
    """Shares are over tokens and seconds; a step that was made twice counts once, as made last."""
    step = {"wait_seconds": 1.0, "train_seconds": 2.0, "overlap_seconds": 1.5, "metrics": {"idle/trainer": 0.25}}
    events = [
        {"stage": "rl", "step": step | {"step": 1, "reward": 0.5, "staleness_tokens": ["9"]}},
        {"stage": "rl", "step": step | {"step": 1, "reward": 0.1, "staleness_tokens": ["10", "0", "30"]}},
        {"stage": "rl", "step": step | {"step": 2, "reward": 0.2, "staleness_tokens": ["0", "40"]}},
        {"stage": "end", "evaluation": {"tasks": 4, "successes": 1, "temperature": 1.0}},
        {"stage": "end", "evaluation": {"errors": 4}},
    ]
    told = summary("r", events)
    rl = told["stages"]["rl"]
    assert (rl["steps"], rl["overlap_share"], rl["stale_token_share"]) == (2, 0.75, 0.875)
    assert (rl["most_stale"], rl["reward"], rl["idle/trainer"]) == (2, [0.1, 0.2], 0.25)
    assert [evaluation["success"] for evaluation in told["evaluations"]] == [0.25, None]
