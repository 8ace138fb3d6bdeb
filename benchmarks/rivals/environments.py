"""The environments that rivals run in: one each, from a lock with exact pins, made once."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".venv-rivals"
LOCKS = Path(__file__).parent / "locks"
NEWER_PYTHONS = ("python3.12", "python3.13")


class Unavailable(Exception):
    """A rival cannot be installed here."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A rival's environment."""

    name: str
    newer_python: bool = False

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return FOLDER / self.name / "bin" / "python"

    def make(self) -> None:
        """Makes it, unless it is there as its lock says. Raises Unavailable."""
        lock = LOCKS / f"{self.name}.lock"
        stamp, digest = FOLDER / self.name / "lock.sha256", hashlib.sha256(lock.read_bytes()).hexdigest()
        if stamp.exists() and stamp.read_text() == digest:
            return
        print(f"installing {self.name} into {FOLDER.name}/{self.name} …", flush=True)
        command(interpreter(newer=self.newer_python), "-m", "venv", "--clear", str(FOLDER / self.name))
        command(str(self.python), "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", str(lock))
        stamp.write_text(digest)


def command(*arguments: str) -> None:
    """Runs an installation's step. Raises Unavailable with what it said."""
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise Unavailable(said[-1] if said else f"{arguments[0]} ended with status {done.returncode}")


def interpreter(*, newer: bool) -> str:
    """A Python that fits: this one, or a newer one if the rival needs it. Raises Unavailable."""
    if not newer or sys.version_info >= (3, 12):
        return sys.executable
    managed = sorted(Path.home().glob(".pyenv/versions/3.1[23].*/bin/python"))
    for candidate in (*filter(None, map(shutil.which, NEWER_PYTHONS)), *map(str, managed)):
        if subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return candidate
    raise Unavailable("it needs Python 3.12 or newer, and none is installed")
