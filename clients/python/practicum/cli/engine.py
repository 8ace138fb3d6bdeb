"""How a vLLM is started on a machine without a GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from practicum.cli.child import Child
from practicum.cli.ready import http_healthy

# One thread a product and no compilation: for a model of a few million parameters on two cores nothing was faster.
# Without TORCHDYNAMO_DISABLE the first request with log-probabilities compiles for up to 48 s.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
# vLLM has no flag for it.
BIND = [sys.executable, "-m", "practicum.common.processes", str(os.getpid())]
SERVED_MODEL = "practicum"
KV_CACHE_BYTES = 256 * 1024 * 1024


def vllm_python() -> Path:
    """The Python of the environment that holds vLLM: $PRACTICUM_VLLM_PYTHON, or the one that `make setup` builds."""
    return Path(os.environ.get("PRACTICUM_VLLM_PYTHON", ".venv-vllm/bin/python"))


def engine_child(model: Path, *, port: int, log: Path) -> Child:
    """A vLLM that serves a model on loopback, and ends with this process, by kill -9 too."""
    options = {
        "model": str(model),
        "served-model-name": SERVED_MODEL,
        "host": "127.0.0.1",
        "port": str(port),
        "dtype": "float32",
        "max-model-len": "2048",
        "max-num-seqs": "64",
        "kv-cache-memory-bytes": str(KV_CACHE_BYTES),
        "generation-config": "vllm",
        "weight-transfer-config": '{"backend":"practicum_disk"}',
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", value)]
    command = [str(vllm_python()), "-m", "vllm.entrypoints.openai.api_server", *flags]
    url = f"http://127.0.0.1:{port}"
    return Child(
        "engine (vLLM)",
        [*BIND, *command, "--enforce-eager", "--enable-scale-out"],
        log,
        lambda: http_healthy(url),
        address=url,
        stop_rank=2,
        environment=ENVIRONMENT,
    )
