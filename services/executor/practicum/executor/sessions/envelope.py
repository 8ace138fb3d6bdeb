"""Messages from callers: which are refused, what is filled in, and what senders are told when nobody takes them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from practicum.common.errors import InvalidArgument
from practicum.executor.names import NAME
from practicum.v1 import executor_pb2, message_pb2

MAX_MESSAGE_BYTES = 1024 * 1024
MAX_TOPICS = 1_000
# The years 1 to 9999, which is what a Timestamp may hold.
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799

ERROR = "error"
IN_REPLY_TO = "in_reply_to"
SYSTEM = "system"

RECEIVER_DEAD = message_pb2.ErrorPayload(
    source=message_pb2.ERROR_SOURCE_NODE,
    reason="RECEIVER_DEAD",
    detail="the session ended, and no node that still lives had been given the message",
)


def check_message(message: message_pb2.Message) -> None:
    """Raises InvalidArgument with every field of a caller's Message that is wrong."""
    if wrong := {f"message.{field}": text for field, text in faults(message)}:
        raise InvalidArgument(wrong)
    if message.ByteSize() > MAX_MESSAGE_BYTES:
        raise InvalidArgument({"message": f"is larger than {MAX_MESSAGE_BYTES} bytes"})


def faults(message: message_pb2.Message) -> Iterator[tuple[str, str]]:
    """The fields that are wrong, with what is wrong."""
    if not message.session_id:
        yield "session_id", "is empty; give the rollout's id"
    if not message.sender:
        yield "sender", "is empty; say who speaks, such as user"
    elif not NAME.fullmatch(message.sender):
        yield "sender", f"must match {NAME.pattern}"
    for field in ("id", "category"):
        if getattr(message, field) and not NAME.fullmatch(getattr(message, field)):
            yield field, f"must match {NAME.pattern}"
    for name, present in (
        ("receiver", message.HasField("receiver")),
        ("caller", message.HasField("caller")),
        ("topic", message.HasField("topic")),
    ):
        if present and not NAME.fullmatch(getattr(message, name)):
            yield name, f"must match {NAME.pattern}, or be left out"
    if not (FIRST_SECOND <= message.timestamp.seconds <= LAST_SECOND and 0 <= message.timestamp.nanos < 10**9):
        yield "timestamp", "is not within the years 1 to 9999"


def check_subscribe(request: executor_pb2.SubscribeRequest) -> None:
    """Raises InvalidArgument with every field that is wrong."""
    wrong = {}
    if not request.receiver and not request.topics:
        wrong["receiver"] = "is empty, and so are topics; say what is wanted"
    elif request.receiver and not NAME.fullmatch(request.receiver):
        wrong["receiver"] = f"must match {NAME.pattern}"
    if len(request.topics) > MAX_TOPICS:
        wrong["topics"] = f"has {len(request.topics)} topics; give at most {MAX_TOPICS}"
    for index, topic in enumerate(request.topics[:MAX_TOPICS]):
        if not NAME.fullmatch(topic):
            wrong[f"topics[{index}]"] = f"must match {NAME.pattern}"
    if wrong:
        raise InvalidArgument(wrong)


def complete(message: message_pb2.Message, traceparent: str) -> None:
    """Fills in what a caller may leave out, and clears what is not the caller's to say."""
    message.id = message.id or uuid.uuid4().hex
    message.traceparent = message.traceparent or traceparent
    message.ClearField("sequence")
    message.ClearField("attempt")
    if not message.HasField("timestamp"):
        message.timestamp.GetCurrentTime()


def error_reply(to: message_pb2.Message, error: message_pb2.ErrorPayload) -> message_pb2.Message:
    """Tells the sender of a Message what became of it. The same Message always gets the same reply, under one id."""
    reply = message_pb2.Message(
        id=uuid.uuid5(uuid.NAMESPACE_OID, f"{to.session_id}/{to.id}/{error.reason}").hex,
        session_id=to.session_id,
        sender=SYSTEM,
        receiver=to.sender,
        category=ERROR,
        headers={IN_REPLY_TO: to.id},
        traceparent=to.traceparent,
        error=error,
    )
    reply.timestamp.GetCurrentTime()
    return reply


def answers(message: message_pb2.Message) -> str:
    """The id of the Message that an error Message answers; empty when it is none."""
    return message.headers.get(IN_REPLY_TO, "") if message.category == ERROR else ""
