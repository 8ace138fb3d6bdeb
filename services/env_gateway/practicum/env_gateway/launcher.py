"""The process that starts every tool server, and the only one that may fork: it has no threads and no gRPC.

It forks servers whose Python module it has loaded beforehand, and executes all others. It is the parent of them all
and the reaper of their orphans, so it can end a server with everything that the server started; when the gateway
ends, however that comes, it ends them all. Standard library only, since each forked server begins as a copy of it.

    python -m practicum.env_gateway.launcher CONTROL_DESCRIPTOR [MODULE:FUNCTION …]

Control messages are JSON, one a packet. First the launcher says `ready`, or what is `wrong` with a function. Then
`start` comes with the server's socket, `end` with its pid; each is answered by id. `exited` tells of a server that
ended by itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from practicum.env_gateway.descendants import (
    adopt_orphans,
    came_from,
    children,
    exit_status,
    in_group,
    kill,
    kill_group,
    reap,
)
from practicum.env_gateway.server_process import become_server, find_function

# A Unix socket takes packets of 208 KiB by default.
MAX_PACKET = 200 * 1024
# Between checks on processes that were told to end, when no signal says that one did.
POLL_SECONDS = 0.02

Json = dict[str, Any]


@dataclass(slots=True)
class Ending:
    """A server on its way out: its stdin is closed, then comes SIGTERM, then SIGKILL. Each is given the grace."""

    request_id: int
    grace_seconds: float
    deadline: float
    last_signal: signal.Signals | None = None
    status: int | None = None


class Launcher:
    """Starts and ends servers as the control socket says, one message after the other."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._servers: set[int] = set()
        self._ending: dict[int, Ending] = {}
        self._selector = selectors.DefaultSelector()
        self._children_ended = wake_on_children()
        self._selector.register(control, selectors.EVENT_READ)
        self._selector.register(self._children_ended, selectors.EVENT_READ)

    def run(self) -> None:
        """Until the gateway is gone; then nothing is left, of whatever server it came."""
        try:
            while self._step():
                pass
        finally:
            for pid in self._servers:
                kill_group(pid, signal.SIGKILL)
            while left := children():
                for pid in left:
                    kill(pid)
                    reap(pid)
                time.sleep(POLL_SECONDS)

    def _step(self) -> bool:
        for key, _ in self._selector.select(POLL_SECONDS if self._ending else None):
            if key.data is not None:
                self._tell_exit(key.fd, key.data)
            elif key.fileobj is self._children_ended:
                self._children_ended.recv(4096)
                self._reap_orphans()
            elif not self._receive():
                return False
        now = time.monotonic()
        for pid, ending in list(self._ending.items()):
            if self._advance(pid, ending, now):
                del self._ending[pid]
                self._answer({"id": ending.request_id, "status": ending.status})
        return True

    def _receive(self) -> bool:
        """Handles one message; False at the end."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, MAX_PACKET, 1)
        except ConnectionResetError:
            return False
        if not data:
            return False
        request = json.loads(data)
        if request["op"] == "start":
            self._start(request, descriptors[0])
        else:
            grace = request["grace_seconds"]
            self._ending[request["pid"]] = Ending(request["id"], grace, time.monotonic() + grace)
        return True

    def _start(self, request: Json, descriptor: int) -> None:
        try:
            pid = os.fork()
        except OSError as error:
            self._answer({"id": request["id"], "error": str(error)})
        else:
            if pid == 0:
                become_server(request, descriptor)
            self._servers.add(pid)
            self._selector.register(os.pidfd_open(pid), selectors.EVENT_READ, pid)
            self._answer({"id": request["id"], "pid": pid})
        os.close(descriptor)

    def _tell_exit(self, descriptor: int, pid: int) -> None:
        """Tells the gateway that a server ended by itself: its socket may stay open in what it started."""
        self._selector.unregister(descriptor)
        os.close(descriptor)
        if pid not in self._ending:
            self._answer({"exited": pid})

    def _answer(self, answer: Json) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # The next read says that the gateway is gone.
            self._control.send(json.dumps(answer).encode())

    def _advance(self, pid: int, ending: Ending, now: float) -> bool:
        """One step towards the end of a server; True when nothing of it is left.

        The leader stays a zombie until its group was sent SIGKILL, so that its number can't be anybody else's by then.
        """
        if ending.last_signal is not signal.SIGKILL and not self._signalled(pid, ending, now):
            return False
        if pid in self._servers:
            ending.status = exit_status(pid, reap=True)
            if ending.status is None:
                return False
            self._servers.discard(pid)
        return not self._sweep(pid)

    def _signalled(self, pid: int, ending: Ending, now: float) -> bool:
        """Sends the next signal when it is due; True when that was SIGKILL, the last."""
        exited = exit_status(pid, reap=False) is not None
        gone = exited and not any(in_group(orphan, pid) for orphan in self._orphans())
        if not gone and now < ending.deadline and not (exited and ending.last_signal is None):
            return False
        polite = not gone and ending.last_signal is None
        ending.last_signal = signal.SIGTERM if polite else signal.SIGKILL
        ending.deadline = now + ending.grace_seconds
        kill_group(pid, ending.last_signal)
        return not polite

    def _sweep(self, pid: int) -> bool:
        """Kills what a dead server left behind, in its group and outside; True while something is there."""
        self._reap_orphans()
        left = [orphan for orphan in self._orphans() if came_from(orphan, pid)]
        for orphan in left:
            kill(orphan)
        return bool(left)

    def _orphans(self) -> list[int]:
        return [pid for pid in children() if pid not in self._servers]

    def _reap_orphans(self) -> None:
        for pid in self._orphans():
            reap(pid)


def wake_on_children() -> socket.socket:
    """A socket that is readable after a child ended."""
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    return reader


def load(functions: Sequence[str]) -> str:
    """Loads the modules of functions (`module:function`). What is wrong with one of them; empty when nothing is."""
    for name in functions:
        try:
            importlib.import_module(name.partition(":")[0])
            found = callable(find_function(name))
        except Exception as error:  # noqa: BLE001 - a module may raise whatever it likes while it loads.
            return f"{name}: {type(error).__name__}: {error}"
        if not found:
            return f"{name}: is no function"
    return ""


def main() -> None:
    """Loads the functions' modules, then serves."""
    control = socket.socket(fileno=int(sys.argv[1]))
    adopt_orphans()
    wrong = load(sys.argv[2:])
    control.send(json.dumps({"wrong": wrong} if wrong else {"ready": True}).encode())
    # Objects that a collection never touches stay in pages shared by all forks.
    gc.collect()
    gc.freeze()
    Launcher(control).run()


if __name__ == "__main__":
    main()
