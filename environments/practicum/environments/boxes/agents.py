"""Scripted agents that play the game. A node runs them with, for example,
`--agent boxes_solver=practicum.environments.boxes.agents:solver`.
"""

from __future__ import annotations

import random

from practicum.environments.boxes.game import TOOL_NAME
from practicum.node.agent import Session

TOOL = f"box__{TOOL_NAME}"


async def solver(session: Session) -> str:
    """Opens box after box until the coin is found."""
    return await play(session, give_up=0.0, source=random.Random())


async def teacher(session: Session) -> str:
    """Impatient: before each call it gives up with the probability `give_up` (0.6), and answers the last number it saw.

    Who learns from it learns to call and to copy, and inherits a bad habit. Settings: `give_up`, `seed`.
    """
    source = random.Random(session.config.get("seed"))
    return await play(session, give_up=float(session.config.get("give_up", 0.6)), source=source)


async def play(session: Session, *, give_up: float, source: random.Random) -> str:
    """Returns the answer, which is said in the last step too."""
    kind, number = "box", session.task.instruction.split()[-1]
    while kind == "box" and source.random() >= give_up:
        (seen,) = await session.act("", [session.tool_call(TOOL, {"id": int(number)})])
        kind, number = seen.text.split()
    answer = f"<answer>{number}</answer>"
    await session.act(answer)
    return answer
