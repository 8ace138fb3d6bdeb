"""The gateway's side of the launcher: servers as handles with a socket for their stdin and stdout."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from practicum.common.errors import ConfigError, Unavailable
from practicum.env_gateway.launcher import MAX_PACKET

log = structlog.get_logger(__name__)

# Nothing else of the gateway's environment reaches the launcher or a server: it may hold secrets.
INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "USER", "LOGNAME", "TMPDIR")


@dataclass(frozen=True, slots=True)
class Command:
    """How a server is started: `fork` (`module:function`) in a copy of the launcher, else `argv` as a program."""

    argv: tuple[str, ...]
    fork: str
    environment: Mapping[str, str]
    folder: Path
    stderr: Path


@dataclass(frozen=True, slots=True)
class Process:
    """A running server. `socket` is its stdin and stdout; `exited` is set when it ended by itself."""

    pid: int
    socket: socket.socket
    exited: asyncio.Event


class Launcher:
    """Starts and ends servers through the launcher process, and replaces it when it dies. An async context manager."""

    def __init__(self, functions: Sequence[str]) -> None:
        """`functions`: what forked servers run, as `module:function`; their modules are loaded once."""
        self._functions = sorted(set(functions))
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ids = itertools.count(1)
        self._processes: dict[int, Process] = {}
        self._beginning = asyncio.Lock()
        self._control: socket.socket | None = None

    async def __aenter__(self) -> Launcher:
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._forget_control()
        await self._process.wait()

    @property
    def alive(self) -> int:
        """Servers that were started and not ended."""
        return len(self._processes)

    async def start(self, command: Command) -> Process:
        """Starts a server. Unavailable when that can't be done."""
        await self._begin_again()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                answer = await self._ask(start_request(command), theirs)
            if "error" in answer:
                raise unavailable(f"can't start a process: {answer['error']}")
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        process = self._processes[answer["pid"]] = Process(answer["pid"], ours, asyncio.Event())
        return process

    async def end(self, process: Process, *, grace_seconds: float) -> int | None:
        """Ends a server with all it started. Its exit status, or minus the signal; None when the launcher was gone."""
        if self._processes.get(process.pid) is not process:  # It ended with the launcher that started it.
            return None
        try:
            answer = await self._ask({"op": "end", "pid": process.pid, "grace_seconds": grace_seconds})
            return int(answer["status"])
        except Unavailable:
            return None
        finally:
            self._processes.pop(process.pid, None)

    async def _begin(self) -> None:
        """Starts the launcher process. ConfigError when it can't load what forked servers run."""
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.setblocking(False)
        with theirs:
            # A session of its own: Ctrl-C on a terminal is for the gateway, which then ends the servers in order.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "practicum.env_gateway.launcher", str(theirs.fileno()), *self._functions),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                env=inherited(os.environ, "PYTHONPATH"),
                start_new_session=True,
            )
        greeting = await asyncio.get_running_loop().sock_recv(control, MAX_PACKET)
        wrong = json.loads(greeting).get("wrong") if greeting else "it ended"
        if wrong:
            control.close()
            await self._process.wait()
            raise ConfigError(f"can't load what forked servers run: {wrong}")
        self._control = control
        asyncio.get_running_loop().add_reader(control, self._read, control)

    async def _begin_again(self) -> None:
        """Replaces a launcher process that died."""
        async with self._beginning:
            if self._control is None:
                await self._process.wait()
                try:
                    await self._begin()
                except ConfigError as error:
                    raise unavailable(str(error)) from error

    async def _ask(self, request: dict[str, Any], passed: socket.socket | None = None) -> dict[str, Any]:
        request_id = next(self._ids)
        packet = json.dumps({"id": request_id, **request}).encode()
        if len(packet) > MAX_PACKET:
            raise unavailable("the server's command and parameters are too long")
        answer = self._answers[request_id] = asyncio.get_running_loop().create_future()
        try:
            await self._send(packet, [passed.fileno()] if passed else [])
            # Shielded by its own future: what was asked happens, whoever still waits.
            return await asyncio.shield(answer)
        except OSError as error:
            raise unavailable("the process that starts servers is gone") from error
        finally:
            self._answers.pop(request_id, None)

    async def _send(self, packet: bytes, descriptors: list[int]) -> None:
        while self._control is not None:
            try:
                socket.send_fds(self._control, [packet], descriptors)
                return
            except BlockingIOError:
                await asyncio.sleep(0.005)
        raise ConnectionResetError

    def _read(self, control: socket.socket) -> None:
        try:
            while data := control.recv(MAX_PACKET):
                self._take(json.loads(data))
        except BlockingIOError:
            return
        except OSError:
            pass
        log.error("launcher_ended", servers=len(self._processes))
        self._forget_control()

    def _forget_control(self) -> None:
        """The kernel ends all servers with their launcher."""
        if self._control is None:
            return
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        self._control = None
        for process in self._processes.values():
            process.exited.set()
        self._processes.clear()
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(ConnectionResetError("the launcher process is gone"))

    def _take(self, answer: dict[str, Any]) -> None:
        if "exited" in answer:
            process = self._processes.get(answer["exited"])
            if process is not None:
                process.exited.set()
            return
        waiting = self._answers.get(answer["id"])
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)


def start_request(command: Command) -> dict[str, Any]:
    """The launcher's `start`, but for its id."""
    return {
        "op": "start",
        "fork": command.fork,
        "command": command.argv,
        "env": dict(command.environment),
        "cwd": str(command.folder),
        "stderr": str(command.stderr),
    }


def inherited(variables: Mapping[str, str], *more: str) -> dict[str, str]:
    """What the launcher and servers are given of the gateway's environment."""
    return {name: variables[name] for name in (*INHERITED, *more) if name in variables}


def unavailable(detail: str) -> Unavailable:
    """A server that could not be started."""
    return Unavailable(detail, reason="ENVIRONMENT_OPEN_FAILED", metadata={"dispatched": "false"})
