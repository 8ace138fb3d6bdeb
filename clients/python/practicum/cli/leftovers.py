"""What earlier runs of a command left in its folder."""

from __future__ import annotations

import shutil
from pathlib import Path

# Nothing else is ever removed: the folder may be anybody's.
MADE = ("executor.db", "executor.db-shm", "executor.db-wal", "executor.db.lock", "settings.json", "results.json")
MADE_FOLDERS = ("logs", "model", "run", "tasks", "trainer")


def forget(folder: Path) -> None:
    """Removes what these commands make in a folder, and makes the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in MADE:
        (folder / name).unlink(missing_ok=True)
    for name in MADE_FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
