"""How a fork of the launcher becomes a tool server. Standard library only, as is all that the launcher loads."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from contextlib import suppress
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
COULD_NOT_START = 127
# In a server's environment, and by that of what it starts: tells which server an orphan came from.
MARK = "PRACTICUM_SERVER_PROCESS"

Json = dict[str, Any]
libc = ctypes.CDLL(None, use_errno=True)


def become_server(request: Json, descriptor: int) -> NoReturn:
    """Turns a fork into the server; never returns, whatever happens."""
    status = 1
    try:
        prepare(request, descriptor)
        if request["fork"]:
            find_function(request["fork"])()
            status = 0
        else:
            execute(request["command"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever it is, two launchers must never come of it.
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def prepare(request: Json, descriptor: int) -> None:
    """Gives the fork its own session, signals, standard streams, folder and environment."""
    os.setsid()
    exit_with_launcher()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.dup2(descriptor, 0)
    os.dup2(descriptor, 1)
    log = os.open(request["stderr"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(request["env"], **{MARK: str(os.getpid())})
    # A fork's own forks keep its name, as they keep no trace of its environment that others could read.
    libc.prctl(PR_SET_NAME, process_name(os.getpid()), 0, 0, 0)
    os.chdir(request["cwd"])


def exit_with_launcher() -> None:
    """Has the kernel end this process when the launcher ends, by kill -9 too."""
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def process_name(pid: int) -> bytes:
    """A forked server's name in `ps`, at most 15 bytes."""
    return b"env-%d" % pid


def find_function(name: str) -> Any:
    """The function `module:function` of a loaded module."""
    module, _, function = name.partition(":")
    return getattr(sys.modules[module], function)


def execute(command: list[str]) -> NoReturn:
    """Becomes another program, or says why not."""
    # Python ignores it, and what is ignored stays so in the new program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"error: can't run {command[0]}: {error.strerror}\n")
        raise SystemExit(COULD_NOT_START) from error
