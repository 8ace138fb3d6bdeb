"""Publishes weights, and brings an engine that comes back up to date before it serves."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import structlog

from practicum.common.errors import DeadlineExceeded
from practicum.inference_proxy.engine import Engine, EngineGone, EngineRefused
from practicum.inference_proxy.errors import (
    checkpoint_refused,
    engine_unavailable,
    path_outside_root,
    version_not_newer,
)
from practicum.inference_proxy.policy import Policy
from practicum.inference_proxy.spans import label, parse_label
from practicum.inference_proxy.swap import stage, swap

log = structlog.get_logger(__name__)

ATTACH_SECONDS = 300.0
CLOSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Published:
    """The version that is served, and how long the engine stood still for it."""

    version: int
    paused_seconds: float = 0.0


class Publisher:
    """Only one update runs at a time; an engine that comes back is brought up to date under the same lock."""

    def __init__(self, engine: Engine, *, policy: Policy, root: Path, model_folder: Path) -> None:
        self._engine = engine
        self._policy = policy
        self._root = root.resolve()
        self._model_folder = model_folder.resolve()
        self._lock = asyncio.Lock()
        self._running: set[asyncio.Task[Published]] = set()

    async def publish(self, version: int, path: str, *, mode: str, timeout_seconds: float) -> Published:
        """Serves the checkpoint as this version. A caller that gives up does not stop an update half-way."""
        update = self._publish(version, confine(self._root, path), mode=mode, timeout_seconds=timeout_seconds)
        task = asyncio.create_task(update)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def attach(self) -> None:
        """Brings an engine that answers again up to date and lets it take work."""
        engine, policy = self._engine, self._policy
        async with self._lock, asyncio.timeout(ATTACH_SECONDS):
            version, path = await reported(engine)
            if version is not None and version > policy.version:
                policy.publish(version, path)  # It is this proxy that started anew.
            # A paused engine was left in the middle of an update: its weights may be newer than its stamp.
            paused = (await engine.get("/is_paused"))["is_paused"]
            engine.version = None if paused else version
            if engine.version != policy.version:
                await self._bring_up_to_date()
            engine.serving = True
        log.info("engine_attached", engine=engine.address, model=engine.model, version=engine.version)

    async def close(self) -> None:
        """Lets an update that runs come to its end, or ends it; either way the engine is not left paused."""
        if self._running:
            _, late = await asyncio.wait(self._running, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _bring_up_to_date(self) -> None:
        version, path = self._policy.version, self._policy.path
        folder = self._root / path if path else self._model_folder
        await stage(self._engine, folder)
        await swap(self._engine, folder, version=version, label=label(version, path), mode="abort")

    async def _publish(self, version: int, path: str, *, mode: str, timeout_seconds: float) -> Published:
        engine, policy = self._engine, self._policy
        async with self._lock:
            if version == policy.version and path == policy.path and engine.serving:
                return Published(version)
            if version < policy.version or (version == policy.version and path != policy.path):
                raise version_not_newer(version, policy.version)
            if not engine.model:
                raise engine_unavailable(engine.address, engine.why_not)
            try:
                async with asyncio.timeout(timeout_seconds):
                    published = await self._update(version, path, mode)
            except EngineGone as error:
                raise engine_unavailable(engine.address, str(error)) from error
            except TimeoutError as error:
                wrong = f"version {version} took longer than {timeout_seconds:g} s"
                raise DeadlineExceeded(wrong, reason="UPDATE_TOO_SLOW") from error
            engine.serving = True
            policy.publish(version, path)
        log.info("weights_published", version=version, paused_seconds=round(published.paused_seconds, 3))
        return published

    async def _update(self, version: int, path: str, mode: str) -> Published:
        engine, folder = self._engine, self._root / path
        try:
            await stage(engine, folder)
        except EngineRefused as error:
            raise checkpoint_refused(path, str(error)) from error
        try:
            return Published(
                version, await swap(engine, folder, version=version, label=label(version, path), mode=mode)
            )
        except EngineRefused as error:
            raise engine_unavailable(engine.address, f"it failed to load version {version}: {error}") from error


async def reported(engine: Engine) -> tuple[int | None, str]:
    """The version and path that the engine was last stamped with; None when the stamp is none of ours."""
    try:
        return parse_label((await engine.get("/weight_info"))["weight_version"])
    except ValueError:
        return None, ""


def confine(root: Path, path: str) -> str:
    """The path relative to the weights root. Symbolic links that lead out are refused too."""
    try:
        relative = (root / path).resolve().relative_to(root)
    except (ValueError, OSError) as error:
        raise path_outside_root(path) from error
    if not path or relative == Path():
        raise path_outside_root(path)
    return str(relative)
