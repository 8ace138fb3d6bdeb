"""Who gets what is said in a session on its node, and what its sender is told."""

from __future__ import annotations

import asyncio

from practicum.node.inbox import Inbox
from practicum.node.post import Post
from practicum.node.recorder import Recorder
from practicum.v1 import message_pb2


def message(text: str, **fields: object) -> message_pb2.Message:
    fields = {"id": text, "session_id": "t/0", "sender": "user", "text": text} | fields
    return message_pb2.Message(**fields)  # type: ignore[arg-type]


def post() -> tuple[Post, list[message_pb2.Message]]:
    """With one agent, and what goes into the journal."""
    journal: list[message_pb2.Message] = []
    return Post(Recorder("t/0", 1, journal.append), ["agent"]), journal


async def received(post: Post) -> list[str]:
    """All that waits, as text or as an error's reason."""
    found = []
    while (got := await post.inboxes["agent"].receive(timeout=0)) is not None:
        found.append(got.text or got.error.reason)
    return found


async def test_the_lower_priority_is_received_first() -> None:
    """Equals as they came."""
    inbox = Inbox()
    for text, priority in (("a", 0), ("b", 1), ("c", 0), ("stop", -5)):
        assert inbox.put(message(text, priority=priority))
    got = [await inbox.receive(timeout=0) for _ in range(5)]
    assert [one and one.text for one in got] == ["stop", "a", "c", "b", None]


async def test_an_agent_waits_for_what_is_said_and_no_longer_than_it_wants() -> None:
    """Two who wait get one each."""
    inbox = Inbox()
    waiting = [asyncio.create_task(inbox.receive(timeout=5)) for _ in range(2)]
    await asyncio.sleep(0)
    inbox.put(message("one"))
    inbox.put(message("two"))
    assert {got.text for got in await asyncio.gather(*waiting) if got} == {"one", "two"}
    assert await inbox.receive(timeout=0.01) is None


async def test_an_inbox_that_nobody_reads_has_an_end() -> None:
    """By number, and by bytes."""
    few, small = Inbox(max_messages=1), Inbox(max_bytes=100)
    assert [few.put(message("a")), few.put(message("b"))] == [True, False]
    assert [small.put(message("x" * 30)), small.put(message("y" * 30))] == [True, False]
    await small.receive(timeout=0)
    assert small.put(message("y" * 30))


async def test_agents_get_what_is_said_to_them_and_to_all_once() -> None:
    """What the executor brings again is known."""
    mine, journal = post()
    for _ in range(2):
        mine.deliver(message("to you", receiver="agent"))
        mine.deliver(message("to all"))
    assert await received(mine) == ["to you", "to all"]
    assert journal == []


async def test_an_unknown_receiver_is_answered_once_and_an_error_never() -> None:
    """The answer tells what it answers, and goes the way the message came."""
    mine, journal = post()
    for _ in range(2):
        mine.deliver(message("hello", receiver="nobody", traceparent="00-1"))
        mine.deliver(message("an error", receiver="nobody", category="error"))
    (error,) = journal
    assert (error.error.reason, error.receiver, error.sender) == ("RECEIVER_UNKNOWN", "user", "system")
    assert (error.category, error.attempt, error.traceparent) == ("error", 1, "00-1")
    assert dict(error.headers) == {"in_reply_to": "hello"}
    assert await received(mine) == []


async def test_what_an_agent_said_to_nobody_comes_back_to_it_as_an_error() -> None:
    """The executor shows it what nobody outside took; what it said to an agent here is known to have arrived."""
    mine, journal = post()
    outside = mine.say("agent", category="message", receiver="critic", text="hello")
    inside = mine.say("agent", category="message", receiver="agent", text="note to self")
    to_all = mine.say("agent", category="message", text="to all")
    for said in (outside, inside):
        mine.deliver(said)
    assert await received(mine) == ["note to self", "RECEIVER_UNKNOWN"]
    assert journal[:3] == [outside, inside, to_all] and [m.category for m in journal[3:]] == ["error"]


async def test_an_agent_that_has_ended_takes_nothing_more() -> None:
    """Who speaks to it is told; what is said to all is nobody's loss."""
    mine, journal = post()
    mine.close()
    mine.deliver(message("too late", receiver="agent"))
    mine.deliver(message("to all"))
    assert [m.error.reason for m in journal] == ["RECEIVER_DEAD"]


async def test_a_full_inbox_is_told_to_the_sender() -> None:
    """Nothing is dropped in silence."""
    mine, journal = post()
    mine.inboxes = {"agent": Inbox(max_messages=1)}
    mine.deliver(message("one", receiver="agent"))
    mine.deliver(message("two", receiver="agent"))
    assert [(m.error.reason, m.headers["in_reply_to"]) for m in journal] == [("RECEIVER_FULL", "two")]
