"""Brings Messages to the agents of one attempt, and answers those that nobody here can take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from practicum.node.inbox import Inbox
from practicum.node.recorder import Recorder
from practicum.v1 import message_pb2

ERROR = "error"
SYSTEM = "system"

UNKNOWN = message_pb2.ErrorPayload(
    source=message_pb2.ERROR_SOURCE_TASK,
    reason="RECEIVER_UNKNOWN",
    detail="no agent of the session and no subscriber has the receiver's name",
)
DEAD = message_pb2.ErrorPayload(
    source=message_pb2.ERROR_SOURCE_AGENT, reason="RECEIVER_DEAD", detail="the agent has ended"
)
FULL = message_pb2.ErrorPayload(
    source=message_pb2.ERROR_SOURCE_AGENT, reason="RECEIVER_FULL", detail="too much waits in the agent's inbox"
)


class Post:
    """The inboxes of an attempt's agents, by name."""

    def __init__(self, recorder: Recorder, agents: Iterable[str]) -> None:
        self._recorder = recorder
        self.inboxes: Mapping[str, Inbox] = {name: Inbox() for name in agents}
        self._seen: set[str] = set()
        self._closed = False

    def deliver(self, message: message_pb2.Message) -> None:
        """The executor brings a Message; repeats are dropped.

        It brings back what an agent of this session said when nobody outside took it: then the receiver lives here and
        has it already, or nowhere.
        """
        own = message.attempt == self._recorder.attempt
        if message.id in self._seen and not (own and message.receiver not in self.inboxes):
            return
        self._seen.add(message.id)
        if not message.HasField("receiver"):
            for inbox in self.inboxes.values():
                inbox.put(message)
        elif message.receiver in self.inboxes:
            self._put(message)
        else:
            self._answer(message, UNKNOWN)

    def say(self, sender: str, *, category: str, **fields: object) -> message_pb2.Message:
        """An agent of this session speaks: to the others here at once, to everybody through the journal."""
        message = self._recorder.say(category, sender, **fields)
        self._seen.add(message.id)
        for name, inbox in self.inboxes.items():
            if name == message.receiver or (name != sender and not message.HasField("receiver")):
                inbox.put(message)
        return message

    def close(self) -> None:
        """The agents have ended."""
        self._closed = True

    def _put(self, message: message_pb2.Message) -> None:
        if self._closed:
            self._answer(message, DEAD)
        elif not self.inboxes[message.receiver].put(message):
            self._answer(message, FULL)

    def _answer(self, message: message_pb2.Message, error: message_pb2.ErrorPayload) -> None:
        """Tells the sender; error Messages are answered by nobody, or two sides would do so for ever."""
        if message.category != ERROR:
            self.say(
                SYSTEM,
                category=ERROR,
                receiver=message.sender,
                headers={"in_reply_to": message.id},
                traceparent=message.traceparent,
                error=error,
            )
