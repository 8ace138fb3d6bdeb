"""A scripted agent's trajectory as text to train on: the agent's words are trained, what it read is not."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from practicum.trainer.conversation import Message, TemplateError, encoded, messages_of, pieces_of, tools_of
from practicum.v1 import message_pb2, trajectory_pb2


def taught() -> trajectory_pb2.Trajectory:
    """One call, and an answer in tags; `final_answer` holds only what stands in them."""
    call = message_pb2.ToolCall(call_id="c", name="box__open", arguments_json='{"id": 17}')
    return trajectory_pb2.Trajectory(
        instruction="open box 17",
        tools_json=json.dumps([{"type": "function"}]),
        final_answer="42",
        steps=[
            trajectory_pb2.Step(
                action=message_pb2.Action(tool_calls=[call]), observations=[message_pb2.Observation(text="coin 42")]
            ),
            trajectory_pb2.Step(action=message_pb2.Action(text="<answer>42</answer>")),
        ],
    )


def render(messages: Sequence[Message], header: bool) -> str:
    """A plain template."""
    said = [f"[{m['role']}] {m['content'] or m['tool_calls'][0]['function']['arguments']}#\n" for m in messages]
    return "".join(said) + ("[assistant] " if header else "")


def test_a_trajectory_is_a_conversation_that_ends_with_what_was_said_last() -> None:
    """The whole text, tags included, as the model has to learn it."""
    roles = [(message["role"], message["content"]) for message in messages_of(taught())]
    assert roles == [
        ("user", "open box 17"),
        ("assistant", ""),
        ("tool", "coin 42"),
        ("assistant", "<answer>42</answer>"),
    ]
    assert tools_of(taught()) == [{"type": "function"}]
    assert tools_of(trajectory_pb2.Trajectory()) is None


def test_only_the_assistants_turns_are_trained_with_the_token_that_ends_them() -> None:
    """What follows that token is context again."""
    pieces = pieces_of(messages_of(taught()), render=render, end="#")
    assert [(piece.text, piece.trained) for piece in pieces] == [
        ("[user] open box 17#\n[assistant] ", False),
        ('{"id": 17}#', True),
        ("\n[tool] coin 42#\n[assistant] ", False),
        ("<answer>42</answer>#", True),
    ]
    ids, mask = encoded(pieces, lambda text: list(text.encode()))
    assert bytes(ids).decode() == "".join(piece.text for piece in pieces)
    assert sum(mask) == sum(len(piece.text) for piece in pieces if piece.trained)


def test_a_template_that_rewrites_earlier_turns_is_refused() -> None:
    """Their tokens could not be told apart."""

    def forgetful(messages: Sequence[Message], header: bool) -> str:
        return render(messages[-2:], header)

    with pytest.raises(TemplateError, match="renders earlier turns anew"):
        pieces_of(messages_of(taught()), render=forgetful, end="#")
    with pytest.raises(TemplateError, match="does not end"):
        pieces_of(messages_of(taught()), render=render, end="§")
