"""What the comparison with rivals computes and keeps, without a rival."""

from __future__ import annotations

import importlib.util
import io
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from load.closed_loop import ClosedLoop
from load.processes import BENCHMARKS
from rivals import arm, environments


def program() -> ModuleType:
    """benchmarks/rivals.py, which the package of the same name hides from imports."""
    spec = importlib.util.spec_from_file_location("rivals_program", BENCHMARKS / "rivals.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Its dataclasses look themselves up.
    spec.loader.exec_module(module)
    return module


class Instant:
    """An arm whose rollouts end when they are submitted."""

    loop: ClosedLoop

    def __init__(self) -> None:
        self.used = 0.0

    def submit(self, ids: list[str]) -> None:
        """Ends them, at a millisecond each."""
        self.used += 0.001 * len(ids)
        self.loop.done(ids)

    def cpu(self) -> float:
        """What was used."""
        return self.used


async def test_an_adapter_runs_what_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line in, a line of JSON out; the end of its input ends it."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("4 8\n1 3\n"))
    await arm.serve(Instant())
    ready, *answers = capsys.readouterr().out.splitlines()
    assert ready == "ready"
    assert [json.loads(answer)["cpu_ms"] for answer in answers] == pytest.approx([1.0, 1.0])


def test_an_environment_is_made_once_for_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And again when the lock changes, or when an installation was cut off."""
    steps: list[tuple[str, ...]] = []

    def step(*arguments: str) -> None:
        steps.append(arguments)
        (tmp_path / "rival").mkdir(exist_ok=True)

    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setattr(environments, "LOCKS", tmp_path)
    monkeypatch.setattr(environments, "command", step)
    lock = tmp_path / "rival.lock"
    lock.write_text("a==1\n")
    environments.Environment("rival").make()
    assert len(steps) == 2
    environments.Environment("rival").make()
    assert len(steps) == 2
    lock.write_text("a==2\n")
    environments.Environment("rival").make()
    assert len(steps) == 4


def test_an_installation_that_fails_says_why() -> None:
    """In the words of the command that failed."""
    with pytest.raises(environments.Unavailable, match="no such rival"):
        environments.command(sys.executable, "-c", "raise SystemExit('no such rival')")


def test_every_pin_is_exact() -> None:
    """What is compared is named to the version."""
    locks = sorted(environments.LOCKS.glob("*.lock"))
    assert len(locks) == 4
    for lock in locks:
        pins = [line for line in lock.read_text().splitlines() if not line.startswith("#")]
        assert all("==" in pin for pin in pins), lock.name


def test_ratios_are_of_turns_of_one_round() -> None:
    """A machine that was slow in one round was so for both."""
    rivals = program()
    rates = {
        rivals.FULL: (200.0, 20.0, 100.0),
        rivals.PROCESS: (300.0, 30.0, 150.0),
        rivals.VERIFIERS: (100.0, 10.0, 50.0),
        rivals.BARE: (100.0, 20.0, 100.0),
    }
    runs = {
        (each, depth): [{"rate": rate, "cpu_ms": 1.0} for rate in found]
        for each, found in rates.items()
        for depth in rivals.DEPTHS
    }
    figures = {figure.what: figure for figure in rivals.figures(list(rates), runs)}
    at_32, at_256 = (figures[f"{depth} in flight: ours, full, over verifiers' broker"] for depth in rivals.DEPTHS)
    assert (at_32.value, at_32.met) == (2.0, True)
    assert (at_256.value, at_256.met) == (2.0, False)
