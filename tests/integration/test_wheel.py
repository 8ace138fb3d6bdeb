"""The wheel with each extra, alone in a clean environment, starts its service."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.services import Service, Services, unused_address

ROOT = Path(__file__).parents[2]
EXTRAS = ["executor", "node", "env-gateway", "inference-proxy", "trainer", "cli"]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built here."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(ROOT)], check=True)
    (built,) = folder.glob("practicum-*.whl")
    return built


def installed(wheel: Path, extra: str, folder: Path) -> Path:
    """Installs the wheel with an extra as a user would; versions are those that are tested here. Returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    lock = ROOT / "requirements" / "base.lock"
    subprocess.run([*pip, "--constraint", str(lock), f"practicum[{extra}] @ {wheel.as_uri()}"], check=True)
    return python


def packages(python: Path) -> set[str]:
    """What is installed."""
    code = "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
    return set(subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_alone_starts_its_service(
    extra: str, wheel: Path, services: Services, tiny_model: Path, tmp_path: Path
) -> None:
    """And pulls no torch: AReaL's and vLLM's trees have pinned locks of their own."""
    python = installed(wheel, extra, tmp_path / "environment")
    assert "torch" not in packages(python)
    if extra == "cli":
        done = subprocess.run(
            [str(python.with_name("practicum")), "--help"], capture_output=True, text=True, check=True
        )
        assert "quickstart" in done.stdout
        return
    catalogue = tmp_path / "catalogue.json"
    catalogue.write_text((ROOT / "environments" / "catalogue.json").read_text())
    flags = {
        "executor": ["--database", str(tmp_path / "executor.db")],
        "node": ["--node-id", "alone"],
        "env-gateway": ["--catalogue", str(catalogue)],
        "inference-proxy": ["--model", str(tiny_model), "--weights-root", str(tmp_path)],
        "trainer": ["--state", str(tmp_path / "trainer")],
    }[extra]
    name = extra.replace("-", "_")
    service = Service(name, unused_address(), flags, tmp_path / "log", python=python)
    services.started.append(service)
    service.launch()
    service.wait_serving()
    assert service.stop() == 0
