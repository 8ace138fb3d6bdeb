"""Messages into sessions and out of them: a real executor, nodes that do what the test says, and a real node."""

from __future__ import annotations

import json
from collections.abc import Iterator

import grpc
import pytest
from google.protobuf import json_format
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from support.boxes import door, submit, trajectories
from support.reader import subscribed
from support.scripted_node import ScriptedNode
from support.services import Service, Services, services_in

from practicum.v1 import dispatch_pb2, executor_pb2, executor_pb2_grpc, message_pb2, task_pb2

Stub = executor_pb2_grpc.ExecutorServiceStub
MEBIBYTE = 1024 * 1024
BROKEN = message_pb2.ErrorPayload(source=message_pb2.ERROR_SOURCE_ENVIRONMENT, reason="TOOL_SERVER_DOWN")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PAYLOADS = [
    {"text": "look into the other box"},
    {"action": message_pb2.Action(text="a", tool_calls=[message_pb2.ToolCall(call_id="c", name="box__open")])},
    {"observation": message_pb2.Observation(call_id="c", text="box 17", full_size_bytes=6)},
    {"task": message_pb2.TaskPayload(instruction="open box 17")},
    {"custom_json": '{"deep": [1, 2.5, null]}'},
]


@pytest.fixture
def executor(services: Services) -> Service:
    return services.executor()


@pytest.fixture
def stub(executor: Service) -> Iterator[Stub]:
    with door(executor.address) as stub:
        submit(stub, [task()])
        yield stub


@pytest.fixture(scope="module")
def door_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stub]:
    """One executor for all calls that it refuses."""
    with services_in(tmp_path_factory.mktemp("executor")) as services, door(services.executor().address) as stub:
        submit(stub, [task()])
        yield stub


def task(attempts: int = 3, **fields: object) -> task_pb2.Task:
    retry = task_pb2.RetryPolicy(max_attempts=attempts)
    retry.initial_backoff.FromMilliseconds(1)
    fields = {"id": "t", "agent": task_pb2.AgentSpec(kind="tool_agent")} | fields
    return task_pb2.Task(instruction="open box 17", retry=retry, **fields)  # type: ignore[arg-type]


def send(stub: Stub, text: str = "", **fields: object) -> executor_pb2.SendMessageResponse:
    fields = {"session_id": "t/0", "sender": "user", "text": text} | fields
    message = message_pb2.Message(**fields)  # type: ignore[arg-type]
    return stub.SendMessage(executor_pb2.SendMessageRequest(message=message), timeout=20)


def refused(error: grpc.RpcError) -> tuple[grpc.StatusCode, str, list[str]]:
    """Code, reason, and the fields that are wrong."""
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in rpc_status.from_call(error).details:
        detail.Unpack(info)
        detail.Unpack(bad)
    return error.code(), info.reason, sorted(violation.field for violation in bad.field_violations)


def told(node: ScriptedNode, count: int = 1) -> list[message_pb2.Message]:
    """The next Messages that a node is told."""
    found: list[message_pb2.Message] = []
    while len(found) < count:
        found += node.next_frame().messages
    return found


def journal(stub: Stub, **request: object) -> list[message_pb2.Message]:
    request = {"session_id": "t/0", "no_follow": True} | request
    watch = stub.WatchSession(executor_pb2.WatchSessionRequest(**request), timeout=20)  # type: ignore[arg-type]
    return [message for response in watch for message in response.messages]


def texts(messages: list[message_pb2.Message]) -> list[str]:
    return [message.text for message in messages]


def unknown(to: message_pb2.Message, attempt: int = 1) -> message_pb2.Message:
    """What a node answers when no agent has the receiver's name."""
    error = message_pb2.ErrorPayload(reason="RECEIVER_UNKNOWN")
    return message_pb2.Message(
        id=f"about {to.id} {attempt}",
        session_id=to.session_id,
        sender="system",
        receiver=to.sender,
        category="error",
        headers={"in_reply_to": to.id},
        attempt=attempt,
        error=error,
    )


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: next(iter(payload)))
def test_every_field_of_a_message_arrives(executor: Service, stub: Stub, payload: dict[str, object]) -> None:
    """At a subscriber, in the journal and on the node: all that was said, and its place."""
    node = ScriptedNode(executor.address)
    node.assignments(1)
    said = message_pb2.Message(
        id="9b2f4a70-3f5b-4a6e-8a0e-5a5a5a5a5a5a",
        session_id="t/0",
        sender="planner",
        receiver="agent",
        caller="user",
        category="handoff",
        topic="boxes",
        priority=-5,
        headers={"a": "1", "b": "é"},
        timestamp=Timestamp(seconds=1_700_000_000, nanos=123_456_789),
        traceparent=TRACEPARENT,
        **payload,  # type: ignore[arg-type]
    )
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


def wait_until_gone(stub: Stub) -> None:
    """Until the executor has seen that the only node's stream broke."""
    while stub.ListNodes(executor_pb2.ListNodesRequest()).nodes[0].connected:
        pass


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


def test_a_session_that_is_cancelled_while_it_waits_answers_what_was_said_to_its_agent(stub: Stub) -> None:
    """Never a hang: also when the subscription is opened with the journal's beginning."""
    send(stub, "hello", id="1", receiver="agent")
    with subscribed(stub, receiver="user", from_sequence=1) as reader:
        stub.CancelTasks(executor_pb2.CancelTasksRequest(task_ids=["t"]))
        (error,) = reader.rest()
    assert (error.error.reason, error.headers["in_reply_to"]) == ("RECEIVER_DEAD", "1")


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


AGENTS = [flag for name in ("parrot", "caller") for flag in ("--agent", f"{name}=support.agents:{name}")]


def play(stub: Stub, services: Services, executor: Service, kind: str, **config: object) -> None:
    """Has a real node run an agent in session a/0."""
    agent = task_pb2.AgentSpec(kind=kind, config_json=json.dumps(config))
    submit(stub, [task_pb2.Task(id="a", instruction="talk", agent=agent)])
    services.node("real", executor, None, *AGENTS)


@pytest.mark.parametrize("payload", PAYLOADS, ids=lambda payload: next(iter(payload)))
def test_every_field_of_a_message_reaches_the_agents_inbox(
    services: Services, executor: Service, stub: Stub, payload: dict[str, object]
) -> None:
    """And what the agent says reaches the subscriber."""
    said = message_pb2.Message(
        id="9b2f4a70-3f5b-4a6e-8a0e-5a5a5a5a5a5a",
        session_id="a/0",
        sender="planner",
        receiver="agent",
        caller="user",
        category="handoff",
        topic="boxes",
        priority=-5,
        headers={"a": "1", "b": "é"},
        timestamp=Timestamp(seconds=1_700_000_000, nanos=123_456_789),
        traceparent=TRACEPARENT,
        **payload,  # type: ignore[arg-type]
    )
    play(stub, services, executor, "parrot")
    with subscribed(stub, "a/0", receiver="planner") as reader:
        said.sequence = stub.SendMessage(executor_pb2.SendMessageRequest(message=said), timeout=20).sequence
        heard = reader.until(lambda m: m.receiver == "planner")
        assert json_format.Parse(heard.custom_json, message_pb2.Message()) == said
        assert (heard.sender, heard.topic, heard.category, heard.attempt) == ("agent", "boxes", "message", 1)
        send(stub, "bye", session_id="a/0")
        assert texts(reader.rest()) == ["bye"]


def test_an_agent_reads_what_was_said_before_it_began_in_order_of_priority(
    services: Services, executor: Service, stub: Stub
) -> None:
    """The session waited, and so did they; one came twice."""
    agent = task_pb2.AgentSpec(kind="parrot")
    submit(stub, [task_pb2.Task(id="a", instruction="talk", agent=agent)])
    for text, priority in (("two", 0), ("three", 0), ("bye", 5), ("one", -5), ("three", 0)):
        send(stub, text, id=text, priority=priority, session_id="a/0", receiver="agent")
    services.node("real", executor, None, *AGENTS)
    (trajectory,) = trajectories(stub, 1)
    assert trajectory.final_answer == "one two three bye"


def test_a_real_node_tells_who_speaks_to_nobody(services: Services, executor: Service, stub: Stub) -> None:
    """The error comes to whoever subscribed as the sender."""
    play(stub, services, executor, "parrot")
    with subscribed(stub, "a/0", receiver="user") as reader:
        send(stub, "hello", session_id="a/0", id="1", receiver="nobody")
        error = reader.until(lambda m: m.category == "error")
        assert (error.error.reason, error.headers["in_reply_to"]) == ("RECEIVER_UNKNOWN", "1")


@pytest.mark.parametrize(("to", "answer"), [("nobody", "RECEIVER_UNKNOWN"), ("user", "here")])
def test_an_agent_calls_and_somebody_or_nobody_answers(
    services: Services, executor: Service, stub: Stub, to: str, answer: str
) -> None:
    """A subscriber's answer comes to its inbox; where nobody is, an error does."""
    agent = task_pb2.AgentSpec(kind="caller", config_json=json.dumps({"to": to, "seconds": 20}))
    submit(stub, [task_pb2.Task(id="a", instruction="talk", agent=agent)])
    with subscribed(stub, "a/0", receiver="user") as reader:
        services.node("real", executor, None, *AGENTS)
        if to == "user":
            call = reader.until(lambda m: m.receiver == "user")
            assert (call.text, call.category, dict(call.headers)) == ("is anybody there?", "handoff", {"a": "1"})
            send(stub, "here", session_id="a/0", receiver=call.sender)
        (trajectory,) = trajectories(stub, 1)
    assert trajectory.final_answer == answer


def test_an_agent_waits_no_longer_than_it_wants(services: Services, executor: Service, stub: Stub) -> None:
    """Silence is an answer too."""
    agent = task_pb2.AgentSpec(kind="caller", config_json=json.dumps({"to": "user", "seconds": 0.05}))
    submit(stub, [task_pb2.Task(id="a", instruction="talk", agent=agent)])
    with subscribed(stub, "a/0", receiver="user"):
        services.node("real", executor, None, *AGENTS)
        (trajectory,) = trajectories(stub, 1)
    assert trajectory.final_answer == "silence"
