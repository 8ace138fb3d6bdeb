"""What servers leave behind: processes whose parent ended become children of the launcher, their subreaper."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from practicum.env_gateway.server_process import MARK, libc, process_name

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Makes this process the parent of every descendant whose own parent ends."""
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> list[int]:
    """Children and adopted ones, zombies included. Only for a process without threads."""
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def in_group(pid: int, server: int) -> bool:
    """Whether a process is in the server's process group."""
    try:
        return os.getpgid(pid) == server
    except ProcessLookupError:
        return False


def came_from(pid: int, server: int) -> bool:
    """Whether an orphan is in the server's process group, or carries the server's mark or name."""
    if in_group(pid, server):
        return True
    folder = Path(f"/proc/{pid}")
    try:
        marked = f"{MARK}={server}".encode() in (folder / "environ").read_bytes().split(b"\0")
        return marked or (folder / "comm").read_bytes().strip() == process_name(server)
    except OSError:
        return False


def exit_status(pid: int, *, reap: bool) -> int | None:
    """How a child ended: its exit status, or minus the signal; None while it runs. Reaped or left a zombie."""
    result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | (0 if reap else os.WNOWAIT))
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def reap(pid: int) -> None:
    """Forgets a child that ended; nothing while it runs."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def kill(pid: int) -> None:
    """Ends a process at once."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def kill_group(pid: int, number: signal.Signals) -> None:
    """Signals a whole process group."""
    with suppress(ProcessLookupError):
        os.killpg(pid, number)
