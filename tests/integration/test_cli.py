"""The `practicum` command, as a person uses it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.boxes import boxes_tasks
from support.commands import PRACTICUM, practicum, processes_of, read_until, wait_for
from support.services import Service, Services, unused_address, unused_ports

from practicum.client import ExecutorClient, read_trajectories

SOLVER = ("--agent", "boxes_solver=practicum.environments.boxes.agents:solver")


def base_port() -> str:
    """The first of several ports that nobody listens on."""
    return str(unused_ports())


@pytest.fixture
def executor(services: Services) -> Service:
    """An executor with everything that scripted agents need."""
    executor = services.executor()
    gateway = services.start("env_gateway", "--catalogue", "environments/catalogue.json")
    services.node("node", executor, gateway, *SOLVER)
    return executor


def test_tasks_go_in_and_trajectories_come_out(executor: Service, tmp_path: Path) -> None:
    """submit, trajectories, watch, nodes."""
    at = ("--executor", executor.address)
    practicum("submit", str(tasks_file(tmp_path, 3)), "--wait", *at)
    assert practicum("trajectories", "--limit", "2", *at).count("finished") == 2
    assert "box__open" in practicum("watch", "t0/0", *at)
    assert "node" in practicum("nodes", *at)
    practicum("trajectories", "--output", str(tmp_path / "out.jsonl"), *at)
    assert {t.task_id for t in read_trajectories(tmp_path / "out.jsonl")} == {"t0", "t1", "t2"}
    lines = practicum("trajectories", "--json", "--min-reward", "1", *at).splitlines()
    assert {json.loads(line)["taskId"] for line in lines} == {"t0", "t1", "t2"}


def test_something_is_said_in_a_rollout(executor: Service) -> None:
    """send, and watch shows it; what can't be said is told in a sentence."""
    at = ("--executor", executor.address)
    with ExecutorClient(executor.address) as client:
        client.submit(boxes_tasks(1, "nobody_runs_this"))
    assert "message 1 of t0/0" in practicum("send", "t0/0", "look left", "--to", "agent", "--as", "guide", *at)
    watched = practicum("watch", "t0/0", "--no-follow", *at)
    assert "guide" in watched and "look left" in watched
    assert "SESSION_UNKNOWN" in practicum("send", "t0/1", "hello", *at, status=1)


def tasks_file(folder: Path, count: int) -> Path:
    """So many games."""
    from google.protobuf import json_format

    path = folder / "tasks.jsonl"
    path.write_text("".join(json_format.MessageToJson(t, indent=None) + "\n" for t in boxes_tasks(count)))
    return path


def test_a_reader_with_a_limit_goes_on_behind_it(executor: Service, tmp_path: Path) -> None:
    """What was shown is acked."""
    at = ("--executor", executor.address)
    practicum("submit", str(tasks_file(tmp_path, 4)), "--wait", *at)
    shown = [practicum("trajectories", "--consumer", "me", "--limit", "2", "--json", *at) for _ in range(2)]
    ids = [json.loads(line)["taskId"] for text in shown for line in text.splitlines()]
    assert sorted(ids) == ["t0", "t1", "t2", "t3"]


def test_who_has_read_enough_gets_no_error(executor: Service, tmp_path: Path) -> None:
    """`practicum trajectories --json | head -1`."""
    at = ("--executor", executor.address)
    practicum("submit", str(tasks_file(tmp_path, 200)), "--wait", *at)
    command = f"set -o pipefail; {PRACTICUM} trajectories --json --executor {executor.address} | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 1)


def test_wrong_input_is_explained(tmp_path: Path) -> None:
    """What is wrong and what to do, and no traceback."""
    nobody = unused_address()
    assert f"nothing answers at {nobody}" in practicum("nodes", "--executor", nobody, status=1)
    (tmp_path / "tasks.jsonl").write_text('{"nonsense": 1}\n')
    assert "tasks.jsonl, line 1" in practicum("submit", str(tmp_path / "tasks.jsonl"), status=1)
    assert "give a file of tasks, or --instruction" in practicum("submit", status=1)
    assert "No such file" in practicum("submit", str(tmp_path / "missing.jsonl"), status=1)
    text = practicum("up", "--model", str(tmp_path), "--folder", str(tmp_path / "up"), status=1)
    assert "no config.json there" in text


def test_the_demo_solves_its_tasks(tmp_path: Path) -> None:
    """And ends with a table."""
    text = practicum("demo", "--tasks", "40", "--folder", str(tmp_path / "demo"), "--base-port", base_port())
    assert re.search(r"all +40 +40", text), text
    assert processes_of(tmp_path) == []


def test_a_taken_port_is_named(executor: Service, tmp_path: Path) -> None:
    """With the service that should listen there."""
    port = executor.address.rpartition(":")[2]
    text = practicum("up", "--folder", str(tmp_path / "up"), "--base-port", port, status=1)
    assert f"{executor.address} is taken, and executor should listen there" in text
    assert processes_of(tmp_path / "up") == []


def test_doctor_says_what_runs(executor: Service) -> None:
    """Whatever it finds, it is a table."""
    port = executor.address.rpartition(":")[2]
    done = subprocess.run([PRACTICUM, "doctor", "--base-port", port], capture_output=True, text=True, check=False)
    assert f"{executor.address} serves" in done.stdout


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts commands, and ends them."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [PRACTICUM, *arguments]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_up_starts_again_what_was_killed(tmp_path: Path, running: Callable[..., subprocess.Popen[str]]) -> None:
    """And Ctrl-C leaves neither a process nor a port."""
    port = base_port()
    process = running("up", "--folder", str(tmp_path), "--base-port", port, *SOLVER)
    read_until(process, "Ctrl-C stops everything")
    with ExecutorClient(f"127.0.0.1:{port}") as client:
        client.submit(boxes_tasks(10))
        (gateway,) = (p for p in processes_of(tmp_path) if "practicum.env_gateway --address" in " ".join(p.cmdline()))
        gateway.kill()
        read_until(process, "env_gateway ended, and was started again")
        client.submit(boxes_tasks(10, prefix="again"))
        found = client.trajectories("reader")
        assert all(next(found).reward == 1.0 for _ in range(20))
        found.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert processes_of(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_service_outlives_up(
    number: signal.Signals, tmp_path: Path, running: Callable[..., subprocess.Popen[str]]
) -> None:
    """However it ends, kill -9 included, and while it is still starting."""
    process = running("up", "--folder", str(tmp_path), "--base-port", base_port())
    wait_for(lambda: len(processes_of(tmp_path)) >= 3)
    process.send_signal(number)
    process.wait(30)
    wait_for(lambda: processes_of(tmp_path) == [])
