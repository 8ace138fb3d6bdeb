"""Folders of commands: nobody else's file is ever removed, and nothing half-made is taken for whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from practicum.cli.failures import Refused
from practicum.cli.folders import claim, made_whole


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """Also when its files have the names of ours."""
    (tmp_path / "model").mkdir()
    for fresh in (False, True):
        with pytest.raises(Refused, match="not this command's"):
            claim(tmp_path, fresh=fresh)
    assert (tmp_path / "model").exists()


def test_a_folder_of_ours_is_kept_unless_fresh(tmp_path: Path) -> None:
    """An empty or a new one becomes ours."""
    folder = tmp_path / "new"
    claim(folder)
    (folder / "model").mkdir()
    claim(folder)
    assert (folder / "model").exists()
    claim(folder, fresh=True)
    assert not (folder / "model").exists()


def test_what_was_cut_off_is_made_anew(tmp_path: Path) -> None:
    """Ctrl-C in the middle leaves no folder under its name."""
    with pytest.raises(KeyboardInterrupt), made_whole(tmp_path / "model") as place:
        place.mkdir()
        (place / "config.json").touch()
        raise KeyboardInterrupt
    assert not (tmp_path / "model").exists()
    with made_whole(tmp_path / "model") as place:
        place.mkdir()
    assert list((tmp_path / "model").iterdir()) == []
