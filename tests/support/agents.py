"""Agents for tests; nodes load them with `--agent name=support.agents:name`."""

from __future__ import annotations

import asyncio
import random

from google.protobuf import json_format

from practicum.environments.boxes.agents import TOOL, play
from practicum.node.agent import Session, resumable


async def slow_solver(session: Session) -> str:
    """Solves boxes, and takes `seconds` (its setting) for it."""
    await asyncio.sleep(float(session.config["seconds"]))
    return await play(session, give_up=0.0, source=random.Random())


async def sleeper(session: Session) -> str:
    """Never ends by itself."""
    await session.act("I sleep")
    await asyncio.Event().wait()
    return ""


async def breaker(session: Session) -> str:
    """Raises, as an agent with a bug does."""
    raise KeyError("a bug of the agent")


async def talker(session: Session) -> str:
    """Says `count` (its setting) messages of `bytes` bytes, one step each."""
    for _ in range(int(session.config["count"])):
        await session.act("x" * int(session.config["bytes"]))
    return "done"


async def impatient(session: Session) -> str:
    """Gives up waiting for something of its own."""
    async with asyncio.timeout(0.01):
        await asyncio.Event().wait()
    return ""


async def self_cancelling(session: Session) -> str:
    """Waits for a task that it cancelled itself."""
    task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()
    await task
    return ""


async def napper(session: Session) -> str:
    """Needs no environment, and takes `seconds` (its setting)."""
    await asyncio.sleep(float(session.config["seconds"]))
    return "done"


async def actor(session: Session) -> str:
    """Acts upon the witness, again and again, for `seconds` (its setting)."""
    ends_at = asyncio.get_running_loop().time() + float(session.config["seconds"])
    while asyncio.get_running_loop().time() < ends_at:
        await session.act("I act", [session.tool_call("witness__act", {})])
        await asyncio.sleep(0.1)
    return "done"


async def parrot(session: Session) -> str:
    """Tells everybody who speaks to it what it heard, until somebody says bye."""
    heard: list[str] = []
    while True:
        message = await session.receive()
        assert message is not None
        heard.append(message.text)
        if message.text == "bye":
            return " ".join(heard)
        session.say(json_format.MessageToDict(message), to=message.sender, topic=message.topic or None)


async def caller(session: Session) -> str:
    """Says something to `to` (its setting), and returns what comes back within `seconds`."""
    asked = session.say("is anybody there?", to=session.config["to"], category="handoff", headers={"a": "1"})
    answer = await session.receive(timeout=float(session.config["seconds"]))
    if answer is None:
        return "silence"
    return answer.error.reason if answer.headers.get("in_reply_to") == asked else answer.text


async def forgetful_solver(session: Session) -> str:
    """Solves boxes, going on from what it is told of the past. Its first attempt stops for ever behind `hold_after`."""
    kind, number = "box", session.task.instruction.split()[-1]
    for step in session.past:
        for seen in step.observations:
            kind, number = seen.text.split()
    opened = len(session.past)
    while kind == "box":
        if session.task.attempt == 1 and opened == session.config.get("hold_after"):
            await asyncio.Event().wait()
        (seen,) = await session.act("", [session.tool_call(TOOL, {"id": int(number)})])
        kind, number = seen.text.split()
        opened += 1
    answer = f"<answer>{number}</answer>"
    await session.act(answer)
    return answer


@resumable
async def mindful_solver(session: Session) -> str:
    """The same, and it is told of the past."""
    return await forgetful_solver(session)
