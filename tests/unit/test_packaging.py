"""hatchling silently skips a source root that is missing, so the lists of roots are guarded here."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PATTERNS = ("services/*/practicum", "clients/python/practicum", "environments/practicum", "proto/python/practicum")
SOURCE_ROOTS = {
    str(package.parent.relative_to(ROOT))
    for pattern in PATTERNS
    for package in ROOT.glob(pattern)
    if any(package.rglob("*.py"))
}


def test_every_source_root_is_installed_editable() -> None:
    """`pip install -e .` puts each root on the path, and no root that does not exist."""
    assert set(PROJECT["tool"]["hatch"]["build"]["dev-mode-dirs"]) == SOURCE_ROOTS


def test_every_source_root_is_in_the_wheel() -> None:
    """The wheel holds each root's package."""
    assert set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == {
        f"{root}/practicum" for root in SOURCE_ROOTS
    }


def test_every_source_root_is_type_checked() -> None:
    """mypy sees each root."""
    assert set(PROJECT["tool"]["mypy"]["mypy_path"]) == SOURCE_ROOTS
    assert set(PROJECT["tool"]["mypy"]["files"]) == SOURCE_ROOTS - {"proto/python"}


def test_practicum_stays_a_namespace() -> None:
    """A practicum/__init__.py in one root would hide all the others."""
    assert not list(ROOT.glob("**/practicum/__init__.py"))
