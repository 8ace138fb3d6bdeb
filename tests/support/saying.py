"""Messages into session t/0 of an executor, and out of it."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from support.boxes import door, submit
from support.executor_door import Stub
from support.scripted_node import ScriptedNode
from support.services import Service

from practicum.v1 import executor_pb2, message_pb2, task_pb2

MEBIBYTE = 1024 * 1024
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PAYLOADS = [
    {"text": "look into the other box"},
    {"action": message_pb2.Action(text="a", tool_calls=[message_pb2.ToolCall(call_id="c", name="box__open")])},
    {"observation": message_pb2.Observation(call_id="c", text="box 17", full_size_bytes=6)},
    {"task": message_pb2.TaskPayload(instruction="open box 17")},
    {"custom_json": '{"deep": [1, 2.5, null]}'},
]


@pytest.fixture
def stub(executor: Service) -> Iterator[Stub]:
    """The executor's calls, once it has the session."""
    with door(executor.address) as stub:
        submit(stub, [task()])
        yield stub


def whole_message(session_id: str, payload: dict[str, object]) -> message_pb2.Message:
    """One with every field."""
    return message_pb2.Message(
        id="9b2f4a70-3f5b-4a6e-8a0e-5a5a5a5a5a5a",
        session_id=session_id,
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


def task(attempts: int = 3, **fields: object) -> task_pb2.Task:
    """The session's task, unless told otherwise."""
    retry = task_pb2.RetryPolicy(max_attempts=attempts)
    retry.initial_backoff.FromMilliseconds(1)
    fields = {"id": "t", "agent": task_pb2.AgentSpec(kind="tool_agent")} | fields
    return task_pb2.Task(instruction="open box 17", retry=retry, **fields)  # type: ignore[arg-type]


def send(stub: Stub, text: str = "", **fields: object) -> executor_pb2.SendMessageResponse:
    """Sends a message as the user."""
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
    """What the session's journal holds now."""
    request = {"session_id": "t/0", "no_follow": True} | request
    watch = stub.WatchSession(executor_pb2.WatchSessionRequest(**request), timeout=20)  # type: ignore[arg-type]
    return [message for response in watch for message in response.messages]


def texts(messages: list[message_pb2.Message]) -> list[str]:
    """Their texts."""
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


def wait_until_gone(stub: Stub) -> None:
    """Until the executor has seen that the only node's stream broke."""
    while stub.ListNodes(executor_pb2.ListNodesRequest()).nodes[0].connected:
        pass
