"""A scripted agent's trajectory as text to train on: what the model would have read, and what it would have said.

The pieces are encoded one by one, as the inference proxy does: it renders each new turn behind tokens that were
sampled, so no token of a prompt ever joins one of an answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from practicum.v1 import message_pb2, trajectory_pb2

Message = dict[str, Any]
# Renders messages, with the header of the assistant's turn behind them if asked.
Render = Callable[[Sequence[Message], bool], str]


class TemplateError(ValueError):
    """The chat template renders a conversation such that its turns can't be told apart."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text. `trained`: the assistant said it."""

    text: str
    trained: bool


def messages_of(trajectory: trajectory_pb2.Trajectory) -> list[Message]:
    """The conversation, in the form that chat templates take; arguments stay the JSON text they were."""
    messages: list[Message] = [{"role": "user", "content": trajectory.instruction}]
    for step in trajectory.steps:
        messages.append(assistant(step.action))
        messages += [{"role": "tool", "content": observation.text} for observation in step.observations]
    answered = bool(trajectory.steps) and not trajectory.steps[-1].action.tool_calls
    if trajectory.final_answer and not answered:
        messages.append({"role": "assistant", "content": trajectory.final_answer})
    return messages


def assistant(action: message_pb2.Action) -> Message:
    """An assistant's turn."""
    message: Message = {"role": "assistant", "content": action.text}
    if action.tool_calls:
        message["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments_json}}
            for call in action.tool_calls
        ]
    return message


def tools_of(trajectory: trajectory_pb2.Trajectory) -> list[Any] | None:
    """The tools that the agent was offered; None when there were none, as templates want it."""
    return json.loads(trajectory.tools_json) or None if trajectory.tools_json else None


def pieces_of(messages: Sequence[Message], *, render: Render, end: str) -> list[Piece]:
    """The conversation up to its last assistant's turn. `end`: the text of the token that ends a turn; it is trained
    with the turn."""
    pieces: list[Piece] = []
    done = ""
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        prompt, turn = render(messages[:index], True), render(messages[: index + 1], False)
        if not (prompt.startswith(done) and turn.startswith(prompt)):
            raise TemplateError("the chat template renders earlier turns anew: their tokens can't be told apart")
        stop = turn.rfind(end)
        if stop < len(prompt):
            raise TemplateError(f"the chat template does not end the assistant's turn with {end!r}")
        pieces += [Piece(prompt[len(done) :], False), Piece(turn[len(prompt) : stop + len(end)], True)]
        done = turn[: stop + len(end)]
    return pieces


def encoded(pieces: Sequence[Piece], encode: Callable[[str], list[int]]) -> tuple[list[int], list[int]]:
    """Token ids and their loss mask."""
    ids: list[int] = []
    mask: list[int] = []
    for piece in pieces:
        tokens = encode(piece.text)
        ids += tokens
        mask += [int(piece.trained)] * len(tokens)
    return ids, mask
