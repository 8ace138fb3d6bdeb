"""Publishes weights as policy versions that only rise, and keeps the last few folders."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from practicum.trainer.inference import Inference
from practicum.trainer.loop_thread import LoopThread
from practicum.trainer.progress import ProgressFile

KEPT_FOLDERS = 3


class Publisher:
    """Publishes for one run."""

    def __init__(self, folder: Path, *, inference: Inference, loop: LoopThread, progress: ProgressFile) -> None:
        self._folder = folder
        self._inference = inference
        self._loop = loop
        self._progress = progress
        self.published = 0

    def next_version(self) -> int:
        """The next version: above what is served, and above what this run ever asked for."""
        if self.published:
            return self.published + 1
        served = self._loop.call(self._inference.version())
        return max(served, self._progress.now.version) + 1

    def publish(self, version: int, write: Callable[[Path], None]) -> None:
        """Has `write` fill a folder, and the engines serve it. Noted first: a version is never used for two weights."""
        self._progress.change(version=version)
        folder = self._folder / f"v{version}"
        write_whole(folder, write)
        self._loop.call(self._inference.publish(version, folder))
        self.published = version
        prune(self._folder, served=version, keep=KEPT_FOLDERS)

    def publish_model(self, model: Path) -> int:
        """Publishes a model's folder as it is."""
        version = self.next_version()
        self.publish(version, lambda folder: copy_model(model, folder))
        return version


def write_whole(folder: Path, write: Callable[[Path], None]) -> None:
    """Fills a folder under another name first, so that it is whole or not there."""
    draft = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    draft.mkdir(parents=True)
    write(draft)
    draft.rename(folder)


def copy_model(model: Path, folder: Path) -> None:
    """Copies a model's files."""
    for file in model.iterdir():
        if file.is_file():
            shutil.copy2(file, folder / file.name)


def prune(folder: Path, *, served: int, keep: int) -> None:
    """Removes all version folders but the last up to the one that is served, which the proxy loads again when an engine
    is started again. Higher ones were left by a run that counted further, and are of no use to anybody."""
    versions = {int(path.name[1:]): path for path in folder.glob("v*") if path.name[1:].isdecimal()}
    kept = sorted(version for version in versions if version <= served)[-keep:]
    for version in versions.keys() - kept:
        shutil.rmtree(versions[version], ignore_errors=True)
