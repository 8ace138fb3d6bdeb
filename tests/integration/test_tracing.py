"""One trace from the submit to the calls of a rollout, and its spans at a collector."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue

import pytest
from opentelemetry import context as otel_context
from opentelemetry import trace
from support.neighbours import TOOL, Heard, neighbours
from support.scripted_node import ScriptedNode
from support.services import Services

from practicum.client import AgentSpec, EnvironmentSpec, ExecutorClient, Scoring, Task
from practicum.common import tracing

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01"
METHODS = ("gateway.OpenSession", "gateway.CallTool", "gateway.Score", "gateway.CloseSession")
METHODS += ("proxy.OpenSession", "proxy.Chat", "proxy.CloseSession")


@pytest.fixture
def heard(services: Services) -> Iterator[tuple[str, Heard]]:
    with neighbours() as both:
        yield both


def a_task(task_id: str = "t") -> Task:
    """One with everything that is called for."""
    scoring = Scoring(scorer="exact", ground_truth="done")
    environment = EnvironmentSpec(name="echo")
    agent = AgentSpec(kind="tool_agent")
    return Task(id=task_id, instruction="a secret prompt", agent=agent, environment=environment, scoring=scoring)


def run_one(services: Services, neighbour: str, traceparent: str | None) -> str:
    """Runs a task; returns the node's log."""
    executor = services.executor("--log-level", "debug")
    doors = ("--executor", executor.address, "--gateway", neighbour, "--inference", neighbour)
    node = services.start("node", "--node-id", "n1", "--log-level", "debug", *doors)
    with ExecutorClient(executor.address) as client:
        client.submit([a_task()], traceparent=traceparent)
        (trajectory,) = client.trajectories("reader", limit=1)
        assert trajectory.final_answer == "done" and trajectory.reward == 1.0
        messages = list(client.watch("t/0", follow=False))
    assert len(messages) == 4
    trace_ids = {tracing.trace_id_of(message.traceparent) for message in messages}
    assert len(trace_ids) == 1 and (not traceparent or trace_ids == {TRACE_ID})
    assert node.stop() == executor.stop() == 0
    return executor.text + node.text


def test_the_submits_trace_reaches_every_call_and_message(services: Services, heard: tuple[str, Heard]) -> None:
    """The node makes a child of its own, which the gateway and the proxy see; logs name the trace."""
    address, calls = heard
    log = run_one(services, address, TRACEPARENT)
    seen = {traceparent for method in METHODS for traceparent in calls.traceparents(method)}
    assert all(calls.traceparents(method) for method in METHODS)
    (child,) = seen
    assert re.fullmatch(rf"00-{TRACE_ID}-[0-9a-f]{{16}}-01", child) and child != TRACEPARENT
    events = [json.loads(line) for line in log.splitlines()]
    (finished,) = (event for event in events if event["event"] == "rollout_finished")
    ids = {"rollout_id": "t/0", "task_id": "t", "attempt": 1, "node_id": "n1", "trace_id": TRACE_ID}
    assert ids.items() <= finished.items() and finished["lease_id"]
    assert finished["outcome"] == "finished" and finished["steps"] == 2
    (accepted,) = (event for event in events if event["event"] == "tasks_accepted")
    assert (accepted["tasks"], accepted["rollouts"], accepted["trace_id"]) == (1, 1, TRACE_ID)
    (ended,) = (event for event in events if event["event"] == "rollout_ended")
    assert ids.items() <= ended.items() and ended["lease_id"] == finished["lease_id"]
    assert "secret" not in log


def test_without_a_trace_nothing_is_made_up(services: Services, heard: tuple[str, Heard]) -> None:
    """Calls carry no context, and messages none."""
    address, calls = heard
    log = run_one(services, address, "")
    assert calls.traceparents("gateway.CallTool") == [""]
    assert "trace_id" not in log


def test_an_assignment_carries_the_present_span_of_the_caller(services: Services) -> None:
    """OpenTelemetry's, when nothing else is said; a wrong one is refused here."""
    executor = services.executor()
    node = ScriptedNode(executor.address)
    span = trace.SpanContext(int(TRACE_ID, 16), int("b7ad6b7169203331", 16), False, trace.TraceFlags(1))
    with ExecutorClient(executor.address) as client:
        token = otel_context.attach(trace.set_span_in_context(trace.NonRecordingSpan(span)))
        try:
            client.submit([a_task("a")])
        finally:
            otel_context.detach(token)
        client.submit([a_task("b")])
        with pytest.raises(ValueError, match="no traceparent"):
            client.submit([a_task("c")], traceparent="00-nonsense")
    told = {assignment.rollout_id: assignment.traceparent for assignment in node.assignments(2)}
    assert told == {"a/0": TRACEPARENT, "b/0": ""}
    node.close()


@pytest.mark.parametrize(
    "wrong",
    [
        f"ff-{TRACE_ID}-b7ad6b7169203331-01",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        TRACEPARENT.upper(),
        TRACEPARENT + "-x",
    ],
)
def test_what_is_no_context_is_let_go(wrong: str) -> None:
    """As W3C says: the call goes on without it."""
    assert tracing.valid(wrong) == "" and tracing.child_of("") == ""
    assert tracing.valid(TRACEPARENT) == TRACEPARENT


class Collector(BaseHTTPRequestHandler):
    """Takes spans as an OpenTelemetry collector does."""

    received: SimpleQueue[bytes]

    def do_POST(self) -> None:
        self.received.put(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleQueue[bytes]]:
    """A collector that services started from here send to."""
    Collector.received = SimpleQueue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, args=(0.05,)).start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield Collector.received
    server.shutdown()
    server.server_close()


def test_spans_go_to_a_collector(services: Services, heard: tuple[str, Heard], collector: SimpleQueue[bytes]) -> None:
    """Submit, rollout, model calls and the tool call, each under what led to it, without what was said."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    address, calls = heard
    run_one(services, address, TRACEPARENT)
    spans, bodies = {}, b""
    while not collector.empty():
        bodies += (body := collector.get())
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = next(a.value.string_value for a in resource.resource.attributes if a.key == "service.name")
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                spans.setdefault((service, span.name), []).append(span)
    submit, rollout = spans["practicum-executor", "submit"][0], spans["practicum-node", "rollout"][0]
    tool, chats = spans["practicum-node", f"execute_tool {TOOL}"][0], spans["practicum-node", "chat"]
    assert submit.trace_id.hex() == TRACE_ID and submit.parent_span_id.hex() == "b7ad6b7169203331"
    assert rollout.parent_span_id == submit.span_id
    assert [span.parent_span_id for span in (tool, *chats)] == [rollout.span_id] * 3
    assert calls.traceparents("gateway.CallTool") == [f"00-{TRACE_ID}-{tool.span_id.hex()}-01"]
    assert calls.traceparents("proxy.Chat") == [f"00-{TRACE_ID}-{span.span_id.hex()}-01" for span in chats]
    facts = {a.key: a.value for a in (*rollout.attributes, *chats[0].attributes)}
    assert facts["practicum.rollout_id"].string_value == "t/0" and facts["practicum.reward"].double_value == 1.0
    assert facts["gen_ai.usage.output_tokens"].int_value == 3
    assert b"secret" not in bodies and b"hello" not in bodies


def test_a_collector_that_is_away_holds_nothing_up(
    services: Services, heard: tuple[str, Heard], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rollouts end, services stop in time, and the log says what is lost."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    began = time.monotonic()
    log = run_one(services, heard[0], TRACEPARENT)
    assert "spans_not_sent" in log and "Traceback" not in log
    assert time.monotonic() - began < 30
