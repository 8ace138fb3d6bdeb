"""The gateway's side of the launcher: servers as handles with a socket for their stdin and stdout."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from practicum.common.errors import Unavailable
from practicum.env_gateway.launcher import MAX_PACKET


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
    """Starts and ends servers through the launcher process. Use as an async context manager."""

    def __init__(self, modules: Sequence[str]) -> None:
        """`modules`: what forked servers need, loaded once."""
        self._modules = sorted(set(modules))
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ids = itertools.count(1)
        self._processes: dict[int, Process] = {}

    async def __aenter__(self) -> Launcher:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # A session of its own: Ctrl-C on a terminal is for the gateway, which then ends the servers in order.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "practicum.env_gateway.launcher", str(theirs.fileno()), *self._modules),
                pass_fds=[theirs.fileno()],
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._control)
        self._control.close()
        await self._process.wait()

    @property
    def alive(self) -> int:
        """Servers that were started and not ended."""
        return len(self._processes)

    async def start(self, command: Command) -> Process:
        """Starts a server. Unavailable when that can't be done."""
        ours, theirs = socket.socketpair()
        request = {
            "op": "start",
            "fork": command.fork,
            "command": command.argv,
            "env": dict(command.environment),
            "cwd": str(command.folder),
            "stderr": str(command.stderr),
        }
        try:
            with theirs:
                answer = await self._ask(request, theirs)
        except BaseException:
            ours.close()
            raise
        if "error" in answer:
            ours.close()
            raise Unavailable(f"can't start a process: {answer['error']}", reason="ENVIRONMENT_OPEN_FAILED")
        ours.setblocking(False)
        process = self._processes[answer["pid"]] = Process(answer["pid"], ours, asyncio.Event())
        return process

    async def end(self, process: Process, *, grace_seconds: float) -> int:
        """Ends a server with all it started. Its exit status, or minus the signal that killed it."""
        answer = await self._ask({"op": "end", "pid": process.pid, "grace_seconds": grace_seconds})
        self._processes.pop(process.pid, None)
        return int(answer["status"])

    async def _ask(self, request: dict[str, Any], passed: socket.socket | None = None) -> dict[str, Any]:
        request_id = next(self._ids)
        answer = self._answers[request_id] = asyncio.get_running_loop().create_future()
        packet = json.dumps({"id": request_id, **request}).encode()
        if len(packet) > MAX_PACKET:
            raise Unavailable("the server's command and parameters are too long", reason="ENVIRONMENT_OPEN_FAILED")
        try:
            await self._send(packet, [passed.fileno()] if passed else [])
            # Shielded by its own future: what was asked happens, whoever still waits.
            return await asyncio.shield(answer)
        except OSError as error:
            raise Unavailable("the launcher process is gone", reason="ENVIRONMENT_OPEN_FAILED") from error

    async def _send(self, packet: bytes, descriptors: list[int]) -> None:
        while True:
            try:
                socket.send_fds(self._control, [packet], descriptors)
                return
            except BlockingIOError:
                await asyncio.sleep(0.005)

    def _read(self) -> None:
        try:
            while data := self._control.recv(MAX_PACKET):
                self._take(json.loads(data))
        except BlockingIOError:
            return
        except OSError:
            pass
        asyncio.get_running_loop().remove_reader(self._control)
        for process in self._processes.values():
            process.exited.set()
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(ConnectionResetError("the launcher process is gone"))
        self._answers.clear()

    def _take(self, answer: dict[str, Any]) -> None:
        if "exited" in answer:
            process = self._processes.get(answer["exited"])
            if process is not None:
                process.exited.set()
            return
        waiting = self._answers.pop(answer["id"], None)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)
