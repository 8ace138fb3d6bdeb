"""Swaps the weights of an engine, and leaves nothing sampled under weights whose version is not certain."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

from practicum.inference_proxy.engine import Engine, EngineGone, EngineRefused
from practicum.inference_proxy.sampler import lose

ALREADY_STARTED = "already active"
DOUBT = "an update of its weights failed half-way; they are being loaded again"


async def stage(engine: Engine, folder: Path) -> None:
    """Has the engine read and check the checkpoint without a pause. EngineRefused says what is wrong with it."""
    await engine.post("/init_weight_transfer_engine", {"init_info": {"path": str(folder)}})


async def swap(engine: Engine, folder: Path, *, version: int, label: str, mode: str) -> float:
    """Pauses, swaps, stamps and resumes. Answers with the seconds that the engine stood still.

    `keep` freezes generations. Their keys and values are dropped with the prefix cache and computed again under the new
    weights (`clear_cache`), so each token's log-probability is that of its own version.
    """
    try:
        await engine.post(f"/pause?mode={mode}&clear_cache=true")
        started = time.monotonic()
        await start(engine)
        engine.version = None
        await engine.post("/update_weights", {"update_info": {"path": str(folder)}})
        # The stamp changes while nothing is sampled, so that it changes together with the weights.
        await engine.post("/finish_weight_update", {"weight_version": label})
        engine.version = version
    finally:
        # Shielded: also when the update was cancelled or ran out of time.
        await asyncio.shield(asyncio.ensure_future(release(engine)))
    return time.monotonic() - started


async def start(engine: Engine) -> None:
    """Starts an update; one that a proxy left open when it died is taken over."""
    try:
        await engine.post("/start_weight_update")
    except EngineRefused as error:
        if ALREADY_STARTED not in str(error):
            raise


async def release(engine: Engine) -> None:
    """Lets the engine go on; while its weights are uncertain it stays paused, and what was frozen is ended.

    A paused engine is how the next proxy knows, should this one die before the weights were loaded again.
    """
    with suppress(EngineGone, EngineRefused):  # It is dead, or is released when it is next attended to.
        if engine.version is not None:
            await engine.post("/resume")
            return
        engine.doubts += 1
        lose(engine, DOUBT)
        await engine.post("/abort_requests")
