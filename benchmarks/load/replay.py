"""The agent of a replayed trace: real nodes load it with `--agent replay=load.replay:replay`."""

from __future__ import annotations

import asyncio

from practicum.node.agent import Session


async def replay(session: Session) -> str:
    """Takes as long as its task says."""
    await asyncio.sleep(float(session.config["seconds"]))
    return "done"
