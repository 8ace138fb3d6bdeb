"""Messages between agents and subscribers: a real executor, and a real node."""

from __future__ import annotations

import json

import pytest
from google.protobuf import json_format
from support.boxes import submit, trajectories
from support.executor_door import Stub
from support.executor_door import executor as executor
from support.reader import subscribed
from support.saying import PAYLOADS, send, texts, whole_message
from support.saying import stub as stub
from support.services import Service, Services

from practicum.v1 import executor_pb2, message_pb2, task_pb2

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
    said = whole_message("a/0", payload)
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
