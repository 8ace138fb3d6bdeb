"""Builds the virtual environments layer by layer, from exact pins. Standard library only.

A layer is a lock file installed with --no-deps. A stamp in the environment remembers the lock's digest,
so a layer that is up to date costs nothing, and an interrupted set-up goes on where it stopped.

    python3 scripts/setup.py services dev areal vllm
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


@dataclass(frozen=True, slots=True)
class Layer:
    """One lock file in one virtual environment."""

    name: str
    environment: str
    lock: str
    size: str
    needs: tuple[str, ...] = ()
    editable: bool = False


LAYERS = {
    layer.name: layer
    for layer in (
        Layer("services", ".venv", "requirements/base.lock", "0.3 GB", editable=True),
        Layer("dev", ".venv", "requirements/dev.lock", "0.2 GB", needs=("services",)),
        Layer("areal", ".venv", "requirements/areal-cpu.lock", "1.7 GB", needs=("services",)),
        Layer("vllm", ".venv-vllm", "requirements/vllm-cpu.lock", "2.3 GB", editable=True),
    )
}


def main(names: list[str]) -> int:
    """Brings the named layers, and what they need, up to date."""
    unknown = [name for name in names if name not in LAYERS]
    if unknown or not names:
        print(f"unknown layer {', '.join(unknown) or '(none given)'}; known: {', '.join(LAYERS)}", file=sys.stderr)
        return 2
    if sys.version_info[:2] not in ((3, 11), (3, 12)):
        print(f"Python 3.11 or 3.12 is needed, this is {sys.version.split()[0]}: set PYTHON=…", file=sys.stderr)
        return 2
    wanted = [need for name in names for need in (*LAYERS[name].needs, name)]
    for name in dict.fromkeys(wanted):
        try:
            bring_up_to_date(LAYERS[name])
        except subprocess.CalledProcessError as error:
            print(f"layer {name} failed: {' '.join(map(str, error.cmd))}\nRun the same command again to resume.")
            return 1
    return 0


def bring_up_to_date(layer: Layer) -> None:
    """Installs a layer unless its stamp says that it is there."""
    environment = ROOT / layer.environment
    stamp = environment / f".stamp-{layer.name}"
    digest = layer_digest(layer)
    if stamp.exists() and stamp.read_text() == digest:
        return
    print(f"• {layer.environment}: layer {layer.name} ({layer.size})", flush=True)
    started = time.monotonic()
    if not (environment / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    install_lock(environment / "bin" / "python", ROOT / layer.lock)
    if layer.editable:
        pip(environment / "bin" / "python", ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)])
    stamp.write_text(digest)
    print(f"  done in {time.monotonic() - started:.0f} s", flush=True)


def layer_digest(layer: Layer) -> str:
    """Changes when the lock, the packaging or the Python changes."""
    parts = [(ROOT / layer.lock).read_bytes(), sys.version.encode(), str(ROOT).encode()]
    if layer.editable:
        parts.append((ROOT / "pyproject.toml").read_bytes())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def install_lock(python: Path, lock: Path) -> None:
    """Installs a lock; PyTorch's own CPU index is added only where the configured ones lack the CPU build."""
    torch = next((line.strip() for line in lock.read_text().splitlines() if line.startswith("torch==")), None)
    if torch is not None and not has_distribution(python, torch):
        try:
            pip(python, ["--no-deps", torch], quiet_failure=True)
        except subprocess.CalledProcessError:
            pip(python, ["--no-deps", "--extra-index-url", PYTORCH_CPU_INDEX, torch])
    pip(python, ["--no-deps", "-r", str(lock)])


def has_distribution(python: Path, pin: str) -> bool:
    """Whether exactly this pin is installed."""
    name, version = pin.split("==")
    code = f"import importlib.metadata as m, sys; sys.exit(m.version({name!r}) != {version!r})"
    return subprocess.run([str(python), "-c", code], capture_output=True, check=False).returncode == 0


def pip(python: Path, arguments: list[str], *, quiet_failure: bool = False) -> None:
    """Runs pip install; progress bars on a terminal, one line a package elsewhere."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *arguments]
    if sys.stdout.isatty():
        command.remove("--quiet")
    stderr = subprocess.DEVNULL if quiet_failure else None
    subprocess.run(command, check=True, stderr=stderr, env={**os.environ, "PIP_NO_INPUT": "1"})


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
