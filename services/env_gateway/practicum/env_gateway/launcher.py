"""The process that starts every tool server, and the only one that may fork: it has no threads and no gRPC.

It forks servers whose Python module it has loaded beforehand, and executes all others. It is the parent of them all
and the reaper of their orphans, so it can end a server with everything that the server started; when the gateway
ends, however that comes, it ends them all. Standard library only, since each forked server begins as a copy of it.

    python -m practicum.env_gateway.launcher CONTROL_DESCRIPTOR [MODULE …]

Control messages are JSON, one a packet: `start` with the server's socket, `end` with its pid. Each is answered by id.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

MAX_PACKET = 1 << 18
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
# In a server's environment: tells which server an orphan in a process group of its own came from.
MARK = "PRACTICUM_SERVER_PROCESS"
# Between checks on processes that were told to end, when no signal says that one did.
POLL_SECONDS = 0.02
COULD_NOT_START = 127

Json = dict[str, Any]
libc = ctypes.CDLL(None, use_errno=True)


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
        """Until the gateway is gone; then nothing is left."""
        try:
            while self._step():
                pass
        finally:
            for pid in self._servers:
                kill_group(pid, signal.SIGKILL)
            while self._servers:
                pid = self._servers.pop()
                os.waitpid(pid, 0)
                while self._sweep(pid):
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
        if ending.last_signal is not signal.SIGKILL:
            exited = exit_status(pid, reap=False) is not None
            gone = exited and not any(process_group(orphan) == pid for orphan in self._orphans())
            waits = now < ending.deadline and not (exited and ending.last_signal is None)
            if not gone and waits:
                return False
            polite = not gone and ending.last_signal is None
            ending.last_signal = signal.SIGTERM if polite else signal.SIGKILL
            ending.deadline = now + ending.grace_seconds
            kill_group(pid, ending.last_signal)
            if polite:
                return False
        if pid in self._servers:
            ending.status = exit_status(pid, reap=True)
            if ending.status is None:
                return False
            self._servers.discard(pid)
        return not self._sweep(pid)

    def _sweep(self, pid: int) -> bool:
        """Kills what a dead server left behind, in its group and outside; True while something is there."""
        self._reap_orphans()
        left = [orphan for orphan in self._orphans() if process_group(orphan) == pid or is_marked(orphan, pid)]
        for orphan in left:
            with suppress(ProcessLookupError):
                os.kill(orphan, signal.SIGKILL)
        return bool(left)

    def _orphans(self) -> list[int]:
        """Processes whose parent ended: as their subreaper this process has become their parent."""
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        return [pid for pid in map(int, text.split()) if pid not in self._servers]

    def _reap_orphans(self) -> None:
        for pid in self._orphans():
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def wake_on_children() -> socket.socket:
    """A socket that is readable after a child ended."""
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    return reader


def become_server(request: Json, descriptor: int) -> NoReturn:
    """Turns a fork into the server; never returns, whatever happens."""
    status = 1
    try:
        prepare(request, descriptor)
        if request["fork"]:
            module, _, function = request["fork"].partition(":")
            getattr(sys.modules[module], function)()
            status = 0
        else:
            execute(request["command"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it is, two launchers must never come of it.
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status)


def prepare(request: Json, descriptor: int) -> None:
    """Gives the fork its own session, signals, standard streams, folder and environment."""
    os.setsid()
    exit_with_launcher()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(descriptor, 0)
    os.dup2(descriptor, 1)
    log = os.open(request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(request["env"], **{MARK: str(os.getpid())})
    os.chdir(request["cwd"])


def exit_with_launcher() -> None:
    """Has the kernel end this process when the launcher ends, by kill -9 too."""
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def execute(command: list[str]) -> NoReturn:
    """Becomes another program, or says why not."""
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"error: can't run {command[0]}: {error.strerror}\n")
        raise SystemExit(COULD_NOT_START) from error


def exit_status(pid: int, *, reap: bool) -> int | None:
    """How a child ended: its exit status, or minus the signal; None while it runs. Reaped or left a zombie."""
    result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | (0 if reap else os.WNOWAIT))
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def kill_group(pid: int, number: signal.Signals) -> None:
    """Signals a whole process group."""
    with suppress(ProcessLookupError):
        os.killpg(pid, number)


def process_group(pid: int) -> int | None:
    """A process's group."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def is_marked(pid: int, server: int) -> bool:
    """Whether an orphan's environment says that it came from this server."""
    try:
        return f"{MARK}={server}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def main() -> None:
    """Loads the modules, then serves."""
    control = socket.socket(fileno=int(sys.argv[1]))
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for module in sys.argv[2:]:
        importlib.import_module(module)
    # Objects that a collection never touches stay in pages shared by all forks.
    gc.collect()
    gc.freeze()
    Launcher(control).run()


if __name__ == "__main__":
    main()
