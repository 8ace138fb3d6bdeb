"""The main job with real vLLM and real AReaL, in short: interrupted in the middle, continued, and better for it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from support.commands import PRACTICUM, processes_of, read_until
from support.services import unused_ports

STEPS = "24"


@pytest.mark.vllm
@pytest.mark.areal
@pytest.mark.timeout(900)
def test_a_model_learns_from_practice_also_when_it_is_interrupted(tmp_path: Path) -> None:
    """Ctrl-C in the middle of RL stops everything; the same command goes on from the last checkpoint."""
    port = str(unused_ports())
    command = [PRACTICUM, "quickstart", "--folder", str(tmp_path), "--base-port", port, "--steps", STEPS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as first:
        read_until(first, "rl · step")
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)
    assert first.returncode == 130
    assert processes_of(tmp_path) == []
    second = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert second.returncode == 0, second.stdout[-3000:] + second.stderr[-3000:]
    assert processes_of(tmp_path) == []
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["greedy_before"] <= 0.05
    assert results["greedy_after_sft"] < 0.5
    assert 0.05 <= results["sampled_after_sft"] <= 0.45
    assert results["sampled_after_rl"] > results["sampled_after_sft"] + 0.15
    assert results["sampled_without_tools"] <= 0.05
    assert results["overlap_share"] >= 0.5
    assert results["stale_share"] >= 0.2
    assert (tmp_path / "run" / "learning_curve.png").stat().st_size > 10_000
