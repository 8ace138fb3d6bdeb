"""The first attempt at a rollout, as a test wants it: what it does in the environment, and how much of it is told."""

from __future__ import annotations

import json
from typing import Any

from support.scripted_node import ScriptedNode
from support.services import Service

from practicum.environments.boxes.agents import TOOL
from practicum.node.recorder import Recorder
from practicum.v1 import env_gateway_pb2, env_gateway_pb2_grpc, message_pb2

BROKEN = message_pb2.ErrorPayload(source=message_pb2.ERROR_SOURCE_NODE, reason="NODE_LOST")


class First:
    """A node that took one rollout, and has opened its environment."""

    def __init__(self, executor: Service, calls: env_gateway_pb2_grpc.EnvGatewayServiceStub, kind: str) -> None:
        self.node = ScriptedNode(executor.address, "a", agents=(kind,))
        (self.assignment,) = self.node.assignments(1)
        self.session_id, attempt, task = self.assignment.rollout_id, self.assignment.attempt, self.assignment.task
        self.calls = calls
        self.recorder = Recorder(self.session_id, attempt, lambda message: self.node.send(messages=[message]))
        self.recorder.say("task", "user", task=message_pb2.TaskPayload(instruction=task.instruction))
        request = env_gateway_pb2.OpenSessionRequest(
            session_id=self.session_id, attempt=attempt, environment=task.environment
        )
        self.tools = calls.OpenSession(request, timeout=30).tools

    def tell_action(self, call_id: str, box: int) -> message_pb2.ToolCall:
        """Says what it is about to do."""
        call = message_pb2.ToolCall(call_id=call_id, name=TOOL, arguments_json=json.dumps({"id": box}))
        self.recorder.act("agent", message_pb2.Action(tool_calls=[call]))
        return call

    def make(self, call: message_pb2.ToolCall) -> message_pb2.Observation:
        """Does it."""
        *_, last = self.start(call)
        return last.result

    def start(self, call: message_pb2.ToolCall) -> Any:
        """Begins to do it."""
        request = env_gateway_pb2.CallToolRequest(
            session_id=self.session_id, attempt=self.assignment.attempt, call=call
        )
        return self.calls.CallTool(request, timeout=30)

    def open(self, call_id: str, box: int) -> None:
        """A whole step."""
        call = self.tell_action(call_id, box)
        self.recorder.observe(TOOL, self.make(call), tool_seconds=0.01)

    def die(self) -> None:
        """The rollout is given to another node; the environment is left as it is."""
        self.node.send(draining=True)
        self.node.bring(self.assignment, infrastructure_error=BROKEN)
        next(frame for frame in iter(self.node.next_frame, None) if frame.acked_leases)
        self.node.close()
