"""Looks after the engine: finds out when it comes up, and when it goes."""

from __future__ import annotations

import asyncio

import structlog

from practicum.inference_proxy.engine import Engine, EngineGone, EngineRefused
from practicum.inference_proxy.publisher import Publisher
from practicum.inference_proxy.sampler import lose

log = structlog.get_logger(__name__)

DOWN_SECONDS, UP_SECONDS = 0.5, 5.0
"""How often the engine is asked. A request that fails tells sooner that it is gone."""
STARTED_OTHERWISE = (
    "it lacks calls that are needed: start it with VLLM_SERVER_DEV_MODE=1, --enable-scale-out and "
    """--weight-transfer-config '{"backend": "practicum_disk"}'"""
)


async def watch_engine(engine: Engine, publisher: Publisher) -> None:
    """Asks the engine over and over, until it is cancelled."""
    while True:
        try:
            await attend(engine, publisher)
        except EngineRefused as error:
            lose(engine, explain(error))
        except (EngineGone, KeyError, TypeError, ValueError, TimeoutError) as error:
            lose(engine, str(error) or type(error).__name__)
        await wait(engine)


async def attend(engine: Engine, publisher: Publisher) -> None:
    """Asks the engine whether it lives, and takes it in when it was away."""
    await engine.get("/health")
    if engine.serving:
        return
    served = (await engine.get("/v1/models"))["data"][0]
    engine.model, engine.max_tokens = served["id"], served["max_model_len"]
    await publisher.attach()


async def wait(engine: Engine) -> None:
    """Until the engine is to be asked again: soon when it is lost meanwhile."""
    for _ in range(int(UP_SECONDS / DOWN_SECONDS) if engine.serving else 1):
        await asyncio.sleep(DOWN_SECONDS)
        if not engine.serving:
            return


def explain(error: EngineRefused) -> str:
    """What is wrong with an engine that lives but can't be used."""
    return STARTED_OTHERWISE if error.status == 404 else str(error)
