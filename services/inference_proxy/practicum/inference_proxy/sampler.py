"""Samples on the engine: admits what may run, counts it, and says why when nothing can be sampled."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

import structlog

from practicum.common.errors import InvalidArgument
from practicum.inference_proxy.engine import Engine, EngineFailed, EngineGone, EngineRefused
from practicum.inference_proxy.errors import engine_unavailable, too_many
from practicum.inference_proxy.output import Output

log = structlog.get_logger(__name__)


class Sampler:
    """The only one that sends generations to the engine."""

    def __init__(self, engine: Engine, *, max_in_flight: int) -> None:
        self.engine = engine
        self._max_in_flight = max_in_flight
        self.sampled_tokens = 0
        self.prompt_tokens = 0

    def max_tokens(self) -> int:
        """What the model holds. Raises unless the engine serves."""
        if not self.engine.serving:
            raise engine_unavailable(self.engine.address, self.engine.why_not)
        return self.engine.max_tokens

    async def generate(self, request: Mapping[str, Any]) -> Output:
        """Samples, and answers once."""
        with self._admitted(request):
            output = await self.engine.generate(request)
        self.sampled_tokens += len(output.token_ids)
        return output

    async def stream(self, request: Mapping[str, Any]) -> AsyncGenerator[Output, None]:
        """Samples, and answers piece by piece."""
        with self._admitted(request):
            async with aclosing(self.engine.stream(request)) as pieces:
                async for piece in pieces:
                    self.sampled_tokens += len(piece.token_ids)
                    yield piece

    @contextmanager
    def _admitted(self, request: Mapping[str, Any]) -> Iterator[None]:
        self.max_tokens()
        engine, doubts = self.engine, self.engine.doubts
        if engine.in_flight >= self._max_in_flight:
            raise too_many(self._max_in_flight)
        engine.in_flight += 1
        try:
            yield
        except EngineRefused as error:
            raise InvalidArgument({"prompt": str(error)}, reason="ENGINE_REFUSED") from error
        except EngineFailed as error:
            raise engine_unavailable(engine.address, f"it failed: {error}") from error
        except EngineGone as error:
            lose(engine, str(error))
            raise engine_unavailable(engine.address, str(error)) from error
        finally:
            engine.in_flight -= 1
        if engine.doubts != doubts:
            raise engine_unavailable(engine.address, "an update of its weights failed during the generation")
        self.prompt_tokens += len(request["token_ids"])


def lose(engine: Engine, why: str) -> None:
    """Gives the engine no more work until it was attended to."""
    if engine.serving:
        log.warning("engine_lost", engine=engine.address, error=why)
    engine.serving, engine.why_not = False, why
