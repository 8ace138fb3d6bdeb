"""Who subscribes to a session, and what is told: a real executor, nodes that do what the test says."""

from __future__ import annotations

import grpc
import pytest
from support.boxes import submit
from support.executor_door import Stub
from support.executor_door import executor as executor
from support.reader import subscribed
from support.saying import journal, refused, send, task, texts, told, unknown
from support.saying import stub as stub
from support.scripted_node import ScriptedNode
from support.services import Service

from practicum.v1 import dispatch_pb2, executor_pb2, message_pb2


def test_a_session_that_is_cancelled_while_it_waits_answers_what_was_said_to_its_agent(stub: Stub) -> None:
    """Never a hang: also when the subscription is opened with the journal's beginning."""
    send(stub, "hello", id="1", receiver="agent")
    with subscribed(stub, receiver="user", from_sequence=1) as reader:
        stub.CancelTasks(executor_pb2.CancelTasksRequest(task_ids=["t"]))
        (error,) = reader.rest()
    assert (error.error.reason, error.headers["in_reply_to"]) == ("RECEIVER_DEAD", "1")


def test_who_subscribed_under_a_name_takes_what_is_said_to_it(executor: Service, stub: Stub) -> None:
    """The node is asked too, for it may have an agent of that name; that it has none is no error then."""
    node = ScriptedNode(executor.address)
    (assignment,) = node.assignments(1)
    with subscribed(stub, receiver="critic") as critic, subscribed(stub, receiver="user") as user:
        send(stub, "hello", receiver="critic")
        assert texts(critic.take(1)) == ["hello"]
        (asked,) = told(node)
        node.send(messages=[unknown(asked)])
        node.finish(assignment)
        assert user.rest() == []
    assert texts(journal(stub)) == ["hello"]


def test_agents_talk_to_subscribers(executor: Service, stub: Stub) -> None:
    """By receiver, by topic, to all. What nobody outside takes is shown to the node, which knows its agents."""
    node = ScriptedNode(executor.address)
    (assignment,) = node.assignments(1)

    def say(text: str, **fields: object) -> None:
        message = message_pb2.Message(id=text, session_id="t/0", sender="agent", text=text, attempt=1, **fields)
        node.send(messages=[message])

    with subscribed(stub, receiver="user") as user, subscribed(stub, topics=["news"]) as news:
        say("to user", receiver="user")
        say("to all")
        say("on a topic", topic="news", receiver="nobody")
        assert texts(user.take(2)) == ["to user", "to all"]
        assert texts(news.take(1)) == ["on a topic"]
        assert texts(told(node)) == ["on a topic"]
        node.finish(assignment)
        assert user.rest() == news.rest() == []


def test_a_replay_goes_over_into_what_is_said_live(stub: Stub) -> None:
    """Without gap or repeat, while somebody goes on speaking."""
    for index in range(300):
        send(stub, str(index))
    with subscribed(stub, receiver="agent", from_sequence=11) as reader:
        for index in range(300, 400):
            send(stub, str(index))
        assert texts(reader.take(390)) == [str(index) for index in range(10, 400)]


def test_an_ended_session_is_replayed_and_not_waited_for(executor: Service, stub: Stub) -> None:
    """Who wants only what comes gets nothing."""
    send(stub, "hello")
    node = ScriptedNode(executor.address)
    (assignment,) = node.assignments(1)
    node.finish(assignment)
    next(frame for frame in iter(node.next_frame, None) if frame.acked_leases)
    with subscribed(stub, receiver="agent", from_sequence=1) as whole, subscribed(stub, receiver="agent") as rest:
        assert texts(whole.rest()) == ["hello"]
        assert rest.rest() == []


def test_who_does_not_read_is_told_so_and_nobody_else_waits(executor: Service, stub: Stub) -> None:
    """Over 10,000 messages wait. What was not read is in the journal."""
    node = ScriptedNode(executor.address)
    node.assignments(1)
    idle = stub.Subscribe(executor_pb2.SubscribeRequest(session_id="t/0", receiver="agent"), timeout=60)
    idle.initial_metadata()
    with subscribed(stub, receiver="agent") as reader:
        for start in range(0, 24_000, 1_000):
            ids = [str(number) for number in range(start, start + 1_000)]
            node.send(messages=[message_pb2.Message(id=i, session_id="t/0", text="x" * 1_000) for i in ids])
            assert [message.id for message in reader.take(1_000)] == ids
    with pytest.raises(grpc.RpcError) as caught:
        for _ in idle:
            pass
    assert refused(caught.value)[:2] == (grpc.StatusCode.RESOURCE_EXHAUSTED, "SUBSCRIBER_TOO_SLOW")


def test_sigterm_tells_subscribers_to_come_back(executor: Service, stub: Stub) -> None:
    """Nothing hangs."""
    with subscribed(stub, receiver="user") as reader:
        assert executor.stop(timeout=10) == 0
        assert reader.ended() is grpc.StatusCode.UNAVAILABLE


def test_a_frame_of_a_node_may_hold_messages_of_several_sessions(executor: Service, stub: Stub) -> None:
    """Each goes to its own journal and its own readers."""
    submit(stub, [task(id="two")])
    node = ScriptedNode(executor.address)
    node.assignments(2)
    with subscribed(stub, receiver="user") as one, subscribed(stub, "two/0", receiver="user") as two:
        said = [message_pb2.Message(id=str(n), session_id=("t/0", "two/0")[n % 2], text=str(n)) for n in range(6)]
        node.send(messages=said, heartbeat=dispatch_pb2.Heartbeat())
        assert (texts(one.take(3)), texts(two.take(3))) == (["0", "2", "4"], ["1", "3", "5"])
