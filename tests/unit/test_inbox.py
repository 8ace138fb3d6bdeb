"""What waits for a subscriber, and how a subscription passes from the journal to what is said live."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from practicum.common.errors import ResourceExhausted, Unavailable
from practicum.executor.sessions.inbox import Inbox, frames_of
from practicum.executor.sessions.subscriptions import Subscription, Subscriptions
from practicum.v1 import message_pb2


def message(sequence: int, *, priority: int = 0, size: int = 0, **fields: str) -> message_pb2.Message:
    return message_pb2.Message(
        session_id="t/0",
        sequence=sequence,
        priority=priority,
        text="x" * size,
        **fields,  # type: ignore[arg-type]
    )


def places(messages: list[message_pb2.Message]) -> list[int]:
    return [message.sequence for message in messages]


class Journal:
    """A journal in memory; `during` happens while a page is on its way."""

    def __init__(self, *messages: message_pb2.Message, page: int = 2) -> None:
        self.messages = list(messages)
        self.during: Callable[[], None] = lambda: None
        self._page = page

    async def read(self, sequence: int) -> list[message_pb2.Message]:
        found = [m for m in self.messages if m.sequence >= sequence][: self._page]
        self.during()
        await asyncio.sleep(0)
        return found


def subscription(
    journal: Journal | None = None, *, from_sequence: int | None = None, inbox: Inbox | None = None, receiver: str = "a"
) -> Subscription:
    read = (journal or Journal()).read
    return Subscription(receiver=receiver, topics=["news"], read=read, from_sequence=from_sequence, inbox=inbox)


async def read(subscription: Subscription, count: int) -> list[int]:
    """The places of the next so many."""
    found: list[int] = []
    frames = subscription.frames()
    async with asyncio.timeout(5):
        while len(found) < count:
            found += places(await anext(frames))
    await frames.aclose()  # type: ignore[attr-defined]
    return found


def test_the_lower_priority_is_first_and_equals_keep_their_order() -> None:
    """Cancellations use -5."""
    inbox = Inbox()
    for sequence, priority in ((1, 0), (2, 3), (3, 0), (4, -5), (5, 3)):
        assert inbox.put(message(sequence, priority=priority))
    assert places(inbox.take()) == [4, 1, 3, 2, 5]
    assert inbox.take() == []


def test_an_inbox_is_bounded_by_number_and_by_bytes() -> None:
    """A message larger than the bound is taken alone: it could never be read otherwise."""
    few, small = Inbox(max_messages=2), Inbox(max_bytes=1_000)
    assert [few.put(message(n)) for n in (1, 2, 3)] == [True, True, False]
    assert few.half_full and len(few) == 2
    assert [small.put(message(n, size=600)) for n in (1, 2)] == [True, False]
    small.take()
    assert small.put(message(3, size=2_000)) and not small.put(message(4))


def test_frames_stay_within_their_size() -> None:
    """Unless a single message exceeds it."""
    messages = [message(n, size=size) for n, size in enumerate((400, 400, 400, 5_000, 10), start=1)]
    assert [places(frame) for frame in frames_of(messages, 1_000)] == [[1, 2], [3], [4], [5]]
    inbox = Inbox()
    for one in messages:
        inbox.put(one)
    assert [places(inbox.take(1_000)) for _ in range(4)] == [[1, 2], [3], [4], [5]]


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, True),
        ({"receiver": "a"}, True),
        ({"receiver": "b"}, False),
        ({"receiver": "b", "topic": "news"}, True),
        ({"topic": "weather"}, True),
    ],
)
def test_a_subscription_wants_its_receiver_all_and_its_topics(fields: dict[str, str], wanted: bool) -> None:
    """What is said to all is for every receiver, whatever its topic."""
    assert subscription().wants(message(1, **fields)) is wanted


def test_topics_alone_want_nothing_else() -> None:
    """What is said to all is for receivers; this is none."""
    only_topics = subscription(receiver="")
    assert only_topics.wants(message(1, topic="news", receiver="b"))
    assert not only_topics.wants(message(2)) and not only_topics.wants(message(3, receiver=""))


async def test_what_is_said_during_the_replay_comes_once_and_in_place() -> None:
    """It is offered live, and it may or may not be in the page that is being read."""
    journal = Journal(message(1), message(2), message(3))
    subscribed = subscription(journal, from_sequence=2)

    def say() -> None:
        if len(journal.messages) < 9:
            new = message(len(journal.messages) + 1)
            journal.messages.append(new)
            subscribed.offer(new)

    journal.during = say
    assert await read(subscribed, 8) == [2, 3, 4, 5, 6, 7, 8, 9]
    subscribed.offer(message(9))
    subscribed.offer(message(10))
    assert await read(subscribed, 1) == [10]


async def test_a_replay_larger_than_the_inbox_is_read_in_parts() -> None:
    """A long journal makes nobody too slow."""
    journal = Journal(*(message(n) for n in range(1, 101)), page=7)
    subscribed = subscription(journal, from_sequence=1, inbox=Inbox(max_messages=10))
    assert await read(subscribed, 100) == list(range(1, 101))


async def test_who_reads_too_slowly_is_told_to_come_back() -> None:
    """At once: what waits is in the journal."""
    subscribed = subscription(inbox=Inbox(max_messages=2))
    for sequence in (1, 2, 3):
        subscribed.offer(message(sequence))
    with pytest.raises(ResourceExhausted, match="subscribe again"):
        await read(subscribed, 1)


async def test_what_waits_is_read_before_the_end() -> None:
    """An end in order loses nothing."""
    subscribed = subscription(Journal(message(1)), from_sequence=1)
    subscribed.end()
    assert [places(frame) async for frame in subscribed.frames()] == [[1]]


async def test_subscribers_of_all_sessions_are_told_of_the_executors_end() -> None:
    """Also those that come while it stops."""
    subscriptions, before, after = Subscriptions(), subscription(), subscription()
    subscriptions.add("t/0", before)
    subscriptions.end_all(Unavailable("the executor stops", reason="DRAINING"))
    subscriptions.add("t/1", after)
    for subscribed in (before, after):
        with pytest.raises(Unavailable):
            await read(subscribed, 1)


def test_only_a_subscriber_of_that_name_takes_what_is_said_to_somebody() -> None:
    """Who reads along on a topic does not answer for a receiver."""
    subscriptions, named, on_topic = Subscriptions(), subscription(), subscription(receiver="")
    subscriptions.add("t/0", on_topic)
    assert not subscriptions.offer(message(1, receiver="a", topic="news"))
    subscriptions.add("t/0", named)
    assert subscriptions.offer(message(2, receiver="a", topic="news"))
    assert not subscriptions.offer(message(3))
    subscriptions.remove("t/0", named)
    subscriptions.remove("t/0", on_topic)
    assert not subscriptions
