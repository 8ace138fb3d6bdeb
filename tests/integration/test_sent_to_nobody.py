"""What a sender is told when nobody can be given its message: a real executor, nodes that do what the test says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest
from support.boxes import door
from support.commands import practicum
from support.executor_door import Stub
from support.executor_door import executor as executor
from support.reader import subscribed
from support.saying import journal, refused, send, told, unknown
from support.saying import stub as stub
from support.scripted_node import ScriptedNode
from support.services import Service

from practicum.client import ExecutorClient
from practicum.v1 import executor_pb2


@contextmanager
def refusing(node: ScriptedNode) -> Iterator[None]:
    """A node that has no agent of any name, and says so of one message."""

    def answer() -> None:
        (asked,) = told(node)
        node.send(messages=[unknown(asked)])

    thread = threading.Thread(target=answer)
    thread.start()
    yield
    thread.join(20)


def test_a_repeat_tells_the_error_that_came_meanwhile(executor: Service, stub: Stub) -> None:
    """The first answer can't: the node knows its agents. Also in the executor's next life."""
    node = ScriptedNode(executor.address)
    node.assignments(1)
    with subscribed(stub, receiver="user") as reader, refusing(node):
        first = send(stub, "hello", id="1", receiver="nobody")
        assert not first.HasField("error")
        send(stub, "to all", id="2")
        reader.until(lambda message: message.category == "error")
    again = send(stub, "hello", id="1", receiver="nobody")
    assert (again.sequence, again.error.reason) == (first.sequence, "RECEIVER_UNKNOWN")
    assert not send(stub, "to all", id="2").HasField("error")
    executor.kill()
    executor.launch()
    executor.wait_serving()
    with door(executor.address) as later:
        assert send(later, "hello", id="1", receiver="nobody").error.reason == "RECEIVER_UNKNOWN"


def test_a_repeat_after_the_end_tells_that_nobody_was_left(stub: Stub) -> None:
    """The session ended before a node had the message; another message is refused."""
    send(stub, "hello", id="1", receiver="agent")
    with subscribed(stub, receiver="user", from_sequence=1) as reader:
        stub.CancelTasks(executor_pb2.CancelTasksRequest(task_ids=["t"]))
        reader.rest()
    assert send(stub, "hello", id="1", receiver="agent").error.reason == "RECEIVER_DEAD"
    with pytest.raises(grpc.RpcError) as error:
        send(stub, "more", id="2", receiver="agent")
    assert refused(error.value)[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "SESSION_ENDED")


def test_the_client_waits_for_the_error_when_asked(executor: Service, stub: Stub) -> None:
    """With patience; the message is in the journal once."""
    node = ScriptedNode(executor.address)
    node.assignments(1)
    with ExecutorClient(executor.address) as client, refusing(node):
        assert client.send("t/0", "hello", to="nobody", patience=20).error.reason == "RECEIVER_UNKNOWN"
    assert [message.text for message in journal(stub)] == ["hello", ""]


def test_practicum_send_says_that_nobody_is_there(executor: Service, stub: Stub) -> None:
    """In a sentence, and with a status."""
    node = ScriptedNode(executor.address)
    node.assignments(1)
    with refusing(node):
        shown = practicum("send", "t/0", "hello", "--to", "nobody", "--executor", executor.address, status=1)
    assert "RECEIVER_UNKNOWN" in shown
