"""How a vLLM is started on a machine without a GPU."""

from __future__ import annotations

import os
from pathlib import Path

from practicum.cli.child import Child
from practicum.cli.ready import http_healthy

# One process, one thread a product, no compilation: measured to be the fastest start and the fastest steps for a
# model of a few million parameters on two cores.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
SERVED_MODEL = "practicum"
KV_CACHE_BYTES = 256 * 1024 * 1024


def vllm_python() -> Path:
    """The Python of the environment that holds vLLM: $PRACTICUM_VLLM_PYTHON, or the one that `make setup` builds."""
    return Path(os.environ.get("PRACTICUM_VLLM_PYTHON", ".venv-vllm/bin/python"))


def engine_child(model: Path, *, port: int, log: Path, bind: list[str]) -> Child:
    """A vLLM that serves a model on loopback. `bind`: the command's beginning, which ends it with this process."""
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
        [*bind, *command, "--enforce-eager", "--enable-scale-out"],
        log,
        lambda: http_healthy(url),
        address=url,
        stop_rank=2,
        environment=ENVIRONMENT,
    )
