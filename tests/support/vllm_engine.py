"""A real vLLM on this machine's CPUs, and the small model that it serves in tests."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil

from practicum.common.processes import bound

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("PRACTICUM_VLLM_PYTHON", ROOT / ".venv-vllm" / "bin" / "python"))
VARIABLES = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    # Else the first request with log-probabilities compiles for up to 48 s.
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
FLAGS = (
    *("--served-model-name", "tiny", "--dtype", "float32", "--max-model-len", "2048", "--max-num-seqs", "64"),
    *("--enforce-eager", "--kv-cache-memory-bytes", str(256 * 1024**2), "--enable-scale-out"),
    *("--generation-config", "vllm", "--weight-transfer-config", '{"backend": "practicum_disk"}'),
)
# 20 s on a quiet machine; a busy one took 200.
START_SECONDS = 280.0


@dataclass(slots=True)
class VllmEngine:
    """One vLLM, which may be killed and started again on the same port."""

    model: Path
    port: int
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts it, without waiting for it."""
        if not PYTHON.exists():
            raise RuntimeError(f"{PYTHON} is not there: make it with `make setup`, or set PRACTICUM_VLLM_PYTHON")
        server = [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server"]
        where = ["--model", str(self.model), "--host", "127.0.0.1", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                bound([*server, *where, *FLAGS]), env={**os.environ, **VARIABLES}, stdout=log, stderr=log
            )

    def wait_until_up(self) -> None:
        """Returns when it answers."""
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if self.process is None or self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"vLLM did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.2)

    def answers(self) -> bool:
        """Whether it is up."""
        try:
            with urllib.request.urlopen(f"{self.address}/health", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """Ends it at once: its server, and its engine, which is a process of its own and would outlive it."""
        if self.process is not None:
            processes = [*psutil.Process(self.process.pid).children(recursive=True), self.process]
            for process in processes:
                process.kill()
            self.process.wait(30)
            self.process = None

    def stop(self) -> None:
        """Ends it in an orderly way."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None
