"""What is loaded into vLLM: a weight-transfer engine that reads checkpoints from disk.

Start vLLM with `--weight-transfer-config '{"backend": "practicum_disk"}'` and this distribution installed beside it.
"""

from __future__ import annotations

from contextlib import suppress

BACKEND = "practicum_disk"


def register() -> None:
    """Called by vLLM in each of its processes, and sometimes more than once in one."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    with suppress(ValueError):  # It is registered already.
        WeightTransferEngineFactory.register_engine(BACKEND, "practicum.vllm_plugin.disk", "DiskEngine")
