"""The folder that holds a gateway's sessions, and the end of those whose gateway was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from practicum.common.errors import ConfigError

PREFIX = "practicum-gateway-"
LOCK = ".lock"


@contextmanager
def sessions_folder() -> Iterator[Path]:
    """A folder of this gateway's own, gone at its end. What gateways left that were killed is removed first."""
    remove_abandoned()
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = (folder / LOCK).open("w")
    except OSError as error:
        raise ConfigError(f"can't make a folder in {tempfile.gettempdir()}: {error.strerror}; set TMPDIR") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> None:
    """Removes folders whose lock nobody holds."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if folder.stat().st_uid == os.getuid() and abandoned(folder / LOCK):
            shutil.rmtree(folder, ignore_errors=True)


def abandoned(lock: Path) -> bool:
    """Whether the gateway that made a lock has ended."""
    try:
        with lock.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
