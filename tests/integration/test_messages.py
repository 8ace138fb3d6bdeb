"""Messages into sessions: what is kept of them, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from support.boxes import door, submit
from support.executor_door import Stub
from support.executor_door import executor as executor
from support.reader import subscribed
from support.saying import MEBIBYTE, PAYLOADS, TRACEPARENT, journal, refused, send, task, texts, told, whole_message
from support.saying import stub as stub
from support.scripted_node import ScriptedNode
from support.services import Service, services_in

from practicum.v1 import executor_pb2, message_pb2


@pytest.fixture(scope="module")
def door_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stub]:
    """One executor for all calls that it refuses."""
    with services_in(tmp_path_factory.mktemp("executor")) as services, door(services.executor().address) as stub:
        submit(stub, [task()])
        yield stub


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: next(iter(payload)))
def test_every_field_of_a_message_arrives(executor: Service, stub: Stub, payload: dict[str, object]) -> None:
    """At a subscriber, in the journal and on the node: all that was said, and its place."""
    node = ScriptedNode(executor.address)
    node.assignments(1)
    said = whole_message("t/0", payload)
    with subscribed(stub, receiver="agent") as by_name, subscribed(stub, topics=["boxes"]) as by_topic:
        answer = stub.SendMessage(executor_pb2.SendMessageRequest(message=said), timeout=20)
        assert not answer.HasField("error")
        said.sequence = answer.sequence
        assert answer.sequence == 1
        assert by_name.take(1) == by_topic.take(1) == journal(stub) == told(node) == [said]


def test_what_a_sender_leaves_out_is_filled_in_and_the_rest_is_not_its_to_say(stub: Stub) -> None:
    """Id and time are made, the trace context is the call's; sequence and attempt are the executor's and the node's."""
    message = message_pb2.Message(session_id="t/0", sender="user", text="hello", sequence=77, attempt=5)
    request = executor_pb2.SendMessageRequest(message=message)
    stub.SendMessage(request, timeout=20, metadata=[("traceparent", TRACEPARENT)])
    (kept,) = journal(stub)
    assert kept.id and kept.HasField("timestamp")
    assert (kept.sequence, kept.attempt, kept.traceparent) == (1, 0, TRACEPARENT)
    assert not kept.HasField("receiver") and not kept.HasField("caller") and not kept.HasField("topic")


def test_a_repeated_id_is_answered_with_its_first_place(executor: Service, stub: Stub) -> None:
    """Also after a kill -9, and after the session's end; and it is told nobody again."""
    assert [send(stub, "one", id="1").sequence, send(stub, "two", id="2").sequence] == [1, 2]
    with subscribed(stub, receiver="agent") as reader:
        assert send(stub, "one again", id="1").sequence == 1
        send(stub, "three", id="3")
        assert texts(reader.take(1)) == ["three"]
    executor.kill()
    executor.launch()
    executor.wait_serving()
    with door(executor.address) as again:
        assert [send(again, id="2").sequence, send(again, "four", id="4").sequence] == [2, 4]
        assert texts(journal(again)) == ["one", "two", "three", "four"]
        again.CancelTasks(executor_pb2.CancelTasksRequest(task_ids=["t"]))
        assert send(again, id="3").sequence == 3
        with pytest.raises(grpc.RpcError) as caught:
            send(again, id="5")
        assert refused(caught.value)[:2] == (grpc.StatusCode.FAILED_PRECONDITION, "SESSION_ENDED")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"session_id": ""}, "session_id"),
        ({"sender": ""}, "sender"),
        ({"sender": "a\0b"}, "sender"),
        ({"sender": "x" * 257}, "sender"),
        ({"id": "a\nb"}, "id"),
        ({"id": "x" * 257}, "id"),
        ({"category": "\x1b[2J"}, "category"),
        ({"receiver": ""}, "receiver"),
        ({"receiver": "\0"}, "receiver"),
        ({"caller": "\x7f"}, "caller"),
        ({"topic": ""}, "topic"),
        ({"timestamp": Timestamp(seconds=2**62)}, "timestamp"),
        ({"timestamp": Timestamp(nanos=-1)}, "timestamp"),
        ({"text": "x" * (MEBIBYTE + 1)}, ""),
    ],
)
def test_a_wrong_message_is_refused_by_field(door_of_all: Stub, fields: dict[str, object], wrong: str) -> None:
    """And nothing of it is kept."""
    with pytest.raises(grpc.RpcError) as caught:
        send(door_of_all, **fields)
    field = f"message.{wrong}".rstrip(".")
    assert refused(caught.value) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", [field])
    assert journal(door_of_all) == []


def test_every_wrong_field_is_named_at_once(door_of_all: Stub) -> None:
    """Also when the message is missing altogether."""
    with pytest.raises(grpc.RpcError) as caught:
        door_of_all.SendMessage(executor_pb2.SendMessageRequest(), timeout=20)
    assert refused(caught.value)[2] == ["message.sender", "message.session_id"]


@pytest.mark.parametrize(
    ("request_fields", "wrong"),
    [
        ({}, ["receiver"]),
        ({"receiver": "a\0"}, ["receiver"]),
        ({"topics": ["good", "", "\n"]}, ["topics[1]", "topics[2]"]),
    ],
)
def test_a_wrong_subscription_is_refused_by_field(
    door_of_all: Stub, request_fields: dict[str, object], wrong: list[str]
) -> None:
    """Who wants nothing is told so."""
    with pytest.raises(grpc.RpcError) as caught:
        next(door_of_all.Subscribe(executor_pb2.SubscribeRequest(session_id="t/0", **request_fields), timeout=20))
    assert refused(caught.value)[1:] == ("INVALID_FIELD", wrong)


@pytest.mark.parametrize("session_id", ["t/1", "t/00", "nobody/0", "t", "t/0\0"])
def test_a_session_that_never_was_is_unknown(door_of_all: Stub, session_id: str) -> None:
    """To senders and to subscribers."""
    with pytest.raises(grpc.RpcError) as sending:
        send(door_of_all, session_id=session_id)
    with pytest.raises(grpc.RpcError) as subscribing:
        next(door_of_all.Subscribe(executor_pb2.SubscribeRequest(session_id=session_id, receiver="user"), timeout=20))
    for caught in (sending, subscribing):
        assert refused(caught.value)[:2] == (grpc.StatusCode.NOT_FOUND, "SESSION_UNKNOWN")
