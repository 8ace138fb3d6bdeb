"""Figures as a table for people, and as JSON for programs."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from figures import Figure, report

from load.processes import BENCHMARKS


def benchmark_parser(name: str, description: str | None, *, repetitions: int = 5) -> argparse.ArgumentParser:
    """The flags that the executor's benchmarks share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = BENCHMARKS / "results" / f"{name}.json"
    parser.add_argument("--json", type=Path, default=default, metavar="FILE", help="where the figures are written")
    parser.add_argument("--repetitions", type=int, default=repetitions, help="runs of each arm (default: %(default)s)")
    return parser


def publish(title: str, figures: Sequence[Figure], *, method: str, file: Path) -> int:
    """Writes and prints. Returns the exit status: 1 when a bar is missed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record(title, figures, method=method), indent=2, ensure_ascii=False) + "\n")
    return report(title, figures, method=method)


def record(title: str, figures: Sequence[Figure], *, method: str) -> dict[str, Any]:
    """What is written: each figure with its bar, how it was measured, when, and on what."""
    return {
        "title": title,
        "method": method,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "architecture": platform.machine(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "load_average": os.getloadavg()[0],
        },
        "figures": [asdict(figure) | {"met": figure.met} for figure in figures],
    }
