"""Flags of the executor that can't be right: refused in a sentence, before anything is opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from practicum.common.errors import ConfigError
from practicum.executor.options import executor_parser, keep_of, settings_of


@pytest.mark.parametrize(
    "flags",
    [
        ("--queue", "a:1e9"),
        ("--queue", "a:1e-9"),
        ("--queue", "a:nan"),
        ("--queue", "a:-1"),
        ("--queue", "a:1:-1"),
        ("--queue", f"a:1:{10**12}"),
        ("--queue", "a b"),
        ("--queue", ":2"),
        ("--lease-seconds", "1e300"),
        ("--lease-seconds", "inf"),
        ("--lease-seconds", "0"),
        ("--max-backlog", str(10**30)),
        ("--max-backlog", "0"),
        ("--keep-days", "1e300"),
        ("--keep-megabytes", "nan"),
        ("--consumer-days", "1e308"),
        ("--consumer-days", "0"),
    ],
)
def test_a_number_beyond_all_sense_is_named(flags: tuple[str, str]) -> None:
    """The flag, and what is right."""
    arguments = executor_parser().parse_args(flags)
    with pytest.raises(ConfigError, match=rf"^{flags[0]} .*: give "):
        settings_of(arguments)
        keep_of(arguments)


def test_what_is_at_the_edge_is_taken() -> None:
    """The smallest and the largest."""
    flags = ["--queue", "a:1e6:1000000000,b:1e-6", "--queue", "c", "--lease-seconds", "86400", "--keep-days", "1e9"]
    arguments = executor_parser().parse_args([*flags, "--max-backlog", "1000000000"])
    settings = settings_of(arguments)
    assert settings.queue_weights == {"a": 1e6, "b": 1e-6, "c": 1.0}
    assert settings.queue_limits == {"a": 10**9}
    assert keep_of(arguments).seconds == 1e9 * 24 * 3600


def test_the_process_ends_with_status_2_and_a_sentence(tmp_path: Path) -> None:
    """No traceback, and no database is made."""
    command = [sys.executable, "-m", "practicum.executor", "--database", str(tmp_path / "e.db"), "--queue", "a:1e9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert done.stderr.startswith("error: --queue 'a:1e9': give ")
    assert list(tmp_path.iterdir()) == []
