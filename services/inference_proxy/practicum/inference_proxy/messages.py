"""The contract's messages to and from the domain's values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from practicum.common.errors import InvalidArgument
from practicum.inference_proxy.chat import Answer, Ask
from practicum.inference_proxy.conversation import Call, Turn
from practicum.inference_proxy.graph import ROOT, Graph, Node, Span
from practicum.v1 import inference_pb2, message_pb2, trajectory_pb2

ROLES = ("system", "user", "assistant", "tool")
PAUSE_MODES = {
    inference_pb2.PAUSE_MODE_UNSPECIFIED: "keep",
    inference_pb2.PAUSE_MODE_KEEP: "keep",
    inference_pb2.PAUSE_MODE_WAIT: "wait",
    inference_pb2.PAUSE_MODE_ABORT: "abort",
}


def ask_of(request: inference_pb2.ChatRequest) -> Ask:
    """What a request asks for."""
    return Ask(turns_of(request.messages), request.tools_json, request.sampling)


def turns_of(messages: Sequence[inference_pb2.ChatMessage]) -> list[Turn]:
    """A conversation. Names what is wrong with it."""
    if not messages:
        raise InvalidArgument({"messages": "is empty; give the whole conversation"})
    wrong = {
        f"messages[{index}].role": f"is {message.role!r}; give one of {', '.join(ROLES)}"
        for index, message in enumerate(messages)
        if message.role not in ROLES
    }
    if wrong:
        raise InvalidArgument(wrong)
    return [turn_of(message) for message in messages]


def turn_of(message: inference_pb2.ChatMessage) -> Turn:
    """One message."""
    calls = tuple(Call(call.call_id, call.name, call.arguments_json) for call in message.tool_calls)
    return Turn(message.role, message.content, calls, message.tool_call_id)


def chat_message(turn: Turn) -> inference_pb2.ChatMessage:
    """One turn."""
    calls = [
        message_pb2.ToolCall(call_id=call.call_id, name=call.name, arguments_json=call.arguments) for call in turn.calls
    ]
    return inference_pb2.ChatMessage(role=turn.role, content=turn.content, tool_calls=calls)


def chat_response(answer: Answer) -> inference_pb2.ChatResponse:
    """The last response of a chat."""
    return inference_pb2.ChatResponse(
        message=chat_message(answer.turn),
        finish_reason=answer.finish_reason,
        usage=inference_pb2.Usage(prompt_tokens=answer.prompt_tokens, sampled_tokens=answer.sampled_tokens),
        branched=answer.branched,
        min_policy_version=answer.versions[0],
        max_policy_version=answer.versions[1],
    )


def token_graph(graph: Graph, *, agent_id: str, digest: str, model: str) -> trajectory_pb2.TokenGraph:
    """What was recorded."""
    nodes = [token_node(node) for node in graph.nodes]
    return trajectory_pb2.TokenGraph(agent_id=agent_id, nodes=nodes, tokenizer_digest=digest, model=model)


def token_node(node: Node) -> trajectory_pb2.TokenNode:
    """One run of tokens."""
    return trajectory_pb2.TokenNode(
        parent=None if node.parent == ROOT else node.parent,
        role=trajectory_pb2.TokenRole.ValueType(node.role),
        token_ids=node.token_ids,
        logprobs=node.logprobs,
        version_spans=version_spans(node.spans),
        finish_reason=node.finish_reason,
    )


def version_spans(spans: Iterable[Span]) -> list[trajectory_pb2.VersionSpan]:
    """Which policy versions sampled which tokens."""
    return [trajectory_pb2.VersionSpan(version=span.version, start=span.start, end=span.end) for span in spans]
