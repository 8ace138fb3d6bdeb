"""The folder that a command works in: claimed before it is used, forgotten only when it is a command's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from practicum.cli.failures import Refused

MARK = ".practicum"


def claim(folder: Path, *, fresh: bool = False) -> None:
    """Makes a folder one of ours; `fresh` empties it first. A folder with anything of somebody else is refused."""
    marked = (folder / MARK).exists()
    if folder.exists() and not marked and any(folder.iterdir()):
        raise Refused(f"{folder} holds files that are not this command's; give an empty or a new --folder")
    if fresh and marked:
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


@contextmanager
def made_whole(folder: Path) -> Iterator[Path]:
    """A place to make a folder in, which gets its name when it is whole: one that was cut off is made anew."""
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    yield partial
    partial.rename(folder)
