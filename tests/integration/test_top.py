"""`practicum top`, on a terminal and elsewhere."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from support.commands import PRACTICUM
from support.scripted_node import ScriptedNode
from support.services import Service, Services, unused_address

from practicum.cli.top_view import Picture, duration, rates, view
from practicum.client import AgentSpec, ExecutorClient, Task
from practicum.v1 import executor_pb2

WAIT_SECONDS = 20


@dataclass
class Terminal:
    """A command on a terminal: what it shows, and keys for it."""

    process: subprocess.Popen[bytes]
    ours: int
    seen: str = ""

    def wait_for(self, pattern: str) -> str:
        """Until it has shown this since it was last asked. Returns what it showed."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not re.search(pattern, self.seen):
            assert time.monotonic() < deadline, self.seen
            ready, _, _ = select.select([self.ours], [], [], 0.1)
            if ready:
                self.seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(self.ours, 65536).decode(errors="replace"))
        shown, self.seen = self.seen, ""
        return shown


@pytest.fixture
def executor(services: Services) -> Service:
    return services.executor("--queue", "urgent:3:100")


@contextmanager
def top_at(address: str) -> Iterator[Terminal]:
    """The command, live."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "140", "LINES": "40"}
    command = [PRACTICUM, "top", "--executor", address]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        try:
            yield Terminal(process, ours)
        finally:
            process.kill()
            os.close(ours)


@pytest.fixture
def terminal(executor: Service) -> Iterator[Terminal]:
    with top_at(executor.address) as terminal:
        yield terminal


def submit(executor: Service, count: int) -> None:
    """Rollouts in the queue `urgent`."""
    agent = AgentSpec(kind="tool_agent")
    with ExecutorClient(executor.address) as client:
        client.submit([Task(instruction="go", agent=agent, rollouts=count, queue="urgent")])


def test_it_shows_queues_and_nodes_as_they_change(executor: Service, terminal: Terminal) -> None:
    """And q ends it."""
    terminal.wait_for(r"all 0 +[░]+")
    submit(executor, 6)
    terminal.wait_for(r"urgent +6 +0 +0\.0 +\d+\.\ds +3 +100")
    node = ScriptedNode(executor.address, "n1", slots=4)
    given = node.assignments(4)
    terminal.wait_for(r"n1 +█{10} +4 +4 +0\.0 +connected")
    for assignment in given:
        node.finish(assignment)
    terminal.wait_for(r"urgent +0 +2 +[1-9]")
    os.write(terminal.ours, b"q")
    assert terminal.process.wait(10) == 0
    node.close()


def test_it_reconnects(executor: Service, terminal: Terminal) -> None:
    """It says what is wrong meanwhile, keeps the last picture, and Ctrl-C ends it without a word of error."""
    submit(executor, 6)
    terminal.wait_for(r"urgent +6")
    executor.kill()
    shown = terminal.wait_for(r"trying again[^$]*urgent +6")
    assert f"nothing answers at {executor.address}" in shown
    executor.launch()
    executor.wait_serving()
    terminal.seen = ""
    shown = terminal.wait_for(r"practicum top[^$]*urgent +6 +0")
    while "trying again" in shown:
        shown = terminal.wait_for(r"practicum top[^$]*urgent +6 +0")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.process.wait(10) == 0
    assert "Traceback" not in terminal.seen


def test_an_executor_that_stopped_answering_does_not_keep_keys_waiting(executor: Service, terminal: Terminal) -> None:
    """The picture tells how old it is."""
    terminal.wait_for("all 0")
    os.kill(executor.pid, signal.SIGSTOP)
    try:
        terminal.wait_for(r"trying again; this is \d+\.\ds old: the executor does not answer")
        os.write(terminal.ours, b"q")
        assert terminal.process.wait(5) == 0
    finally:
        os.kill(executor.pid, signal.SIGCONT)


def test_without_a_terminal_it_is_text_once(executor: Service) -> None:
    """For scripts, and with --once."""
    submit(executor, 3)
    shown = subprocess.run(
        [PRACTICUM, "top", "--executor", executor.address], capture_output=True, text=True, timeout=60
    )
    assert shown.returncode == 0 and "\x1b" not in shown.stdout
    assert re.search(r"urgent +3 +0 +0\.0", shown.stdout) and re.search(r"all 1 +3", shown.stdout)


def test_nobody_at_the_address_is_told() -> None:
    """In a sentence; live, it waits for it."""
    nobody = unused_address()
    command = [PRACTICUM, "top", "--once", "--executor", nobody]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and f"nothing answers at {nobody}" in done.stderr
    with top_at(nobody) as terminal:
        terminal.wait_for(f"trying again: .*nothing answers at {nobody}")
        os.write(terminal.ours, b"q")
        assert terminal.process.wait(10) == 0


def test_a_count_that_began_anew_is_no_rate() -> None:
    """An executor that was started again counts from zero."""
    assert rates({"a": 30, "b": 5, "new": 7}, {"a": 10, "b": 50}, 2.0) == {"a": 10.0, "b": 0.0, "new": 0.0}
    assert rates({"a": 1}, {}, 0.0) == {"a": 0.0}
    assert [duration(seconds) for seconds in (3.21, 250, 7500)] == ["3.2s", "4m10s", "2h05m"]


def test_many_nodes_leave_room_for_the_totals() -> None:
    """What does not fit is in the last line all the same."""
    from rich.console import Console

    console = Console(width=120, height=30, force_terminal=False)
    queues = [executor_pb2.QueueStats(queue=f"q{index}", queued=index) for index in range(50)]
    nodes = [executor_pb2.NodeInfo(node_id=f"n{index}", slots=2, running=1, connected=True) for index in range(1000)]
    with console.capture() as captured:
        console.print(view(Picture(queues, nodes, 1.0), Picture(queues, nodes, 0.0), lines=30))
    shown = captured.get().splitlines()
    assert len(shown) <= 30
    assert re.search(r"all 50 +1225", captured.get()) and re.search(r"all 1000 .* 1000 +2000", captured.get())
