"""Messages on their way to nodes and from them: a real executor, nodes that do what the test says."""

from __future__ import annotations

from support.boxes import door, submit
from support.executor_door import BROKEN, Stub
from support.executor_door import executor as executor
from support.reader import subscribed
from support.saying import MEBIBYTE, journal, send, task, texts, told, unknown, wait_until_gone
from support.saying import stub as stub
from support.scripted_node import ScriptedNode
from support.services import Service

from practicum.v1 import dispatch_pb2, message_pb2


def test_what_is_said_to_a_waiting_session_comes_with_its_assignment(executor: Service, stub: Stub) -> None:
    """In the same frame, the lower priority first; what is said later follows."""
    for text, priority in (("one", 0), ("two", 5), ("stop", -5)):
        send(stub, text, priority=priority, receiver="agent")
    node = ScriptedNode(executor.address)
    frame = next(frame for frame in iter(node.next_frame, None) if frame.assignments)
    assert frame.assignments[0].rollout_id == "t/0"
    assert texts(frame.messages) == ["stop", "one", "two"]
    send(stub, "now")
    assert texts(told(node)) == ["now"]


def test_much_that_waits_reaches_the_node_in_frames_it_can_take(executor: Service, stub: Stub) -> None:
    """Seven messages of almost a mebibyte: no frame exceeds the 4 MiB that gRPC takes by default."""
    for index in range(7):
        send(stub, str(index) * (MEBIBYTE - 1_000))
    node = ScriptedNode(executor.address)
    assert [text[0] for text in texts(told(node, 7))] == list("0123456")
    assert len(journal(stub)) == 7


def test_what_waits_survives_a_restart_of_the_executor(executor: Service, stub: Stub) -> None:
    """The journal is where it waits; and other sessions that waited are given out as well."""
    submit(stub, [task(id="quiet")])
    send(stub, "one")
    executor.kill()
    executor.launch()
    executor.wait_serving()
    with door(executor.address) as again:
        node = ScriptedNode(executor.address)
        assert {a.rollout_id for a in node.assignments(2)} == {"t/0", "quiet/0"}
        assert send(again, "two").sequence == 2
        assert texts(told(node)) == ["two"]
        assert texts(journal(again)) == ["one", "two"]
        assert {node.terms.heartbeat_interval.seconds} == {1}


def test_a_further_attempt_is_told_again(executor: Service, stub: Stub) -> None:
    """The agent that was told is gone. What the first attempt said is in the journal it gets, and no message."""
    node = ScriptedNode(executor.address)
    (first,) = node.assignments(1)
    send(stub, "one", receiver="agent")
    assert texts(told(node)) == ["one"]
    node.say(first, "a step")
    node.bring(first, infrastructure_error=BROKEN)
    frame = next(frame for frame in iter(node.next_frame, None) if frame.assignments)
    assert texts(frame.messages) == ["one"]
    assert [(m.text, m.topic, m.attempt) for m in frame.assignments[0].journal] == [("one", "", 0), ("", "step", 1)]


def test_a_node_that_is_back_is_told_again_what_its_broken_stream_may_have_lost(executor: Service, stub: Stub) -> None:
    """And what was said meanwhile. Repeats have the same id."""
    node = ScriptedNode(executor.address)
    (assignment,) = node.assignments(1)
    send(stub, "before", id="1")
    assert texts(told(node)) == ["before"]
    node.close()
    wait_until_gone(stub)
    send(stub, "meanwhile", id="2", receiver="agent")
    back = ScriptedNode(executor.address, held=(assignment.lease_id,))
    assert texts(told(back, 2)) == ["before", "meanwhile"]
    send(stub, "after")
    assert texts(told(back)) == ["after"]


def test_a_node_is_told_again_after_a_restart_of_the_executor(executor: Service, stub: Stub) -> None:
    """It goes on with its lease, and the executor knows from the journal what it was to be told."""
    node = ScriptedNode(executor.address)
    (assignment,) = node.assignments(1)
    node.say(assignment, "a step")
    send(stub, "before")
    told(node)
    executor.kill()
    executor.launch()
    executor.wait_serving()
    back = ScriptedNode(executor.address, held=(assignment.lease_id,))
    assert texts(told(back)) == ["before"]
    with door(executor.address) as again:
        send(again, "after")
    assert texts(told(back)) == ["after"]


def test_a_receiver_whose_node_is_lost_for_good_is_dead(executor: Service) -> None:
    """The sender is told before its subscription ends, and once; broadcasts and errors are answered by nobody."""
    with door(executor.address) as stub:
        submit(stub, [task(attempts=1)])
        node = ScriptedNode(executor.address)
        node.assignments(1)
        node.close()
        wait_until_gone(stub)
        with subscribed(stub, receiver="user") as reader:
            send(stub, "to all")
            send(stub, "to the agent", id="lost", receiver="agent")
            send(stub, "an error", category="error", receiver="agent")
            *_, error = reader.rest()
        assert (error.category, error.receiver, error.sender) == ("error", "user", "system")
        assert (error.error.reason, dict(error.headers)) == ("RECEIVER_DEAD", {"in_reply_to": "lost"})
        assert [m.id for m in journal(stub)].count(error.id) == 1


def test_the_nodes_verdict_reaches_the_sender(executor: Service, stub: Stub) -> None:
    """No agent has that name. It is journalled, and said once although another attempt says so again."""
    node = ScriptedNode(executor.address)
    (assignment,) = node.assignments(1)
    with subscribed(stub, receiver="user") as reader:
        assert not send(stub, "hello", id="1", receiver="nobody").HasField("error")
        (asked,) = told(node)
        node.send(messages=[unknown(asked)])
        (error,) = reader.take(1)
        assert (error.error.reason, error.headers["in_reply_to"]) == ("RECEIVER_UNKNOWN", "1")
        node.bring(assignment, infrastructure_error=BROKEN)
        (again,) = node.assignments(1)
        node.send(messages=[unknown(asked, attempt=2)])
        node.finish(again)
        assert reader.rest() == []
    assert [m.category for m in journal(stub)] == ["", "error"]


def test_nobody_speaks_for_a_session_that_is_not_its_own(executor: Service, stub: Stub) -> None:
    """Neither another node nor another attempt."""
    owner = ScriptedNode(executor.address)
    (assignment,) = owner.assignments(1)
    stranger = ScriptedNode(executor.address, "stranger")
    for speaker, attempt in ((stranger, 0), (stranger, 1), (owner, 7), (owner, 1)):
        said = message_pb2.Message(id=f"{attempt}", session_id="t/0", attempt=attempt, text=f"attempt {attempt}")
        speaker.send(messages=[said])
        speaker.send(heartbeat=dispatch_pb2.Heartbeat(lease_ids=[assignment.lease_id]))
        if speaker is stranger:  # Its answer comes after what it said was heard.
            next(frame for frame in iter(stranger.next_frame, None) if frame.lost_leases)
    owner.finish(assignment)
    with subscribed(stub, receiver="user", from_sequence=1) as reader:
        assert texts(reader.rest()) == ["attempt 1"]
