"""A turn of a recorded conversation: place it, render what is new, sample, understand the answer, record it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from practicum.inference_proxy.chunks import gathered
from practicum.inference_proxy.conversation import Turn
from practicum.inference_proxy.errors import engine_unavailable
from practicum.inference_proxy.graph import ROOT, Sample, Segment
from practicum.inference_proxy.model import Model
from practicum.inference_proxy.output import Output
from practicum.inference_proxy.packing import TOKEN_BYTES
from practicum.inference_proxy.prompts import Prompts
from practicum.inference_proxy.renderer import Renderer
from practicum.inference_proxy.sampler import Sampler
from practicum.inference_proxy.session import Place, Session
from practicum.inference_proxy.sessions import Sessions
from practicum.inference_proxy.text import cut_at, settled
from practicum.inference_proxy.tool_calls import OPENING, parse
from practicum.v1 import inference_pb2


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a turn."""

    turn: Turn
    finish_reason: str
    prompt_tokens: int
    sampled_tokens: int
    branched: bool
    versions: tuple[int, int]
    """The lowest and the highest that sampled it; 0 and 0 when nothing was sampled."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked for: the whole conversation, what may be called, how to sample."""

    turns: Sequence[Turn]
    tools_json: str
    sampling: inference_pb2.Sampling


@dataclass(frozen=True, slots=True)
class Placed:
    """An ask with its place in the session, and what the engine is to read."""

    place: Place
    segments: list[Segment]
    prompt: bytes


class Chat:
    """Chats with one model."""

    def __init__(self, model: Model, sampler: Sampler, sessions: Sessions) -> None:
        self._model = model
        self._renderer = Renderer(model)
        self._prompts = Prompts(model)
        self._sampler = sampler
        self._sessions = sessions

    async def answer(self, session: Session, ask: Ask) -> Answer:
        """Samples a turn and records it."""
        with self._sessions.call(session):
            placed = self._placed(session, ask)
            output = await self._sampler.generate(self._request(placed, ask))
            return self._recorded(session, ask, placed, output)

    async def stream(self, session: Session, ask: Ask) -> AsyncGenerator[str | Answer, None]:
        """As `answer`, with the text as it comes; what may become a tool call or a stop text is held back."""
        with self._sessions.call(session):
            placed, output, sent = self._placed(session, ask), Output(), 0
            marks = [*ask.sampling.stop, *([OPENING] if ask.tools_json else [])]
            async with aclosing(self._sampler.stream(self._request(placed, ask))) as pieces:
                async for chunk in gathered(pieces):
                    output.extend(chunk)
                    text = settled(self._text(output.token_ids), marks)
                    if len(text) > sent:
                        yield text[sent:]
                        sent = len(text)
            answer = self._recorded(session, ask, placed, output)
            yield answer.turn.content[sent:]
            yield answer

    def _placed(self, session: Session, ask: Ask) -> Placed:
        place = session.place(ask.turns, ask.tools_json)
        if place.node == ROOT:
            segments = self._renderer.first(ask.turns, ask.tools_json)
        else:
            ended = session.ended(place.node, self._model.end_ids)
            segments = self._renderer.following(
                ask.turns, matched=place.matched, tools_json=ask.tools_json, ended=ended
            )
        read = b"".join([segment.token_ids for segment in segments])
        return Placed(place, segments, session.graph.tokens(place.node) + read)

    def _request(self, placed: Placed, ask: Ask) -> dict[str, object]:
        return self._prompts.request(placed.prompt, ask.sampling, max_tokens=self._sampler.max_tokens())

    def _recorded(self, session: Session, ask: Ask, placed: Placed, output: Output) -> Answer:
        turn, finish_reason = self._understood(ask, output)
        sample = sample_of(output, finish_reason, self._sampler.engine.address)
        self._sessions.check(session)
        branched = session.branches(placed.place, placed.segments)
        session.record(placed.place, placed.segments, sample, turn)
        versions = [span.version for span in sample.spans] or [0]
        return Answer(
            turn=turn,
            finish_reason=finish_reason,
            prompt_tokens=len(placed.prompt) // TOKEN_BYTES,
            sampled_tokens=len(output.token_ids),
            branched=branched,
            versions=(min(versions), max(versions)),
        )

    def _understood(self, ask: Ask, output: Output) -> tuple[Turn, str]:
        """The answer as a turn, and why it ended. What was sampled stays as it is, whatever is read out of it."""
        text, reason = cut_at(self._text(output.token_ids), ask.sampling.stop), output.finish_reason or "abort"
        if not ask.tools_json:
            return Turn("assistant", text), reason
        content, calls = parse(text)
        return Turn("assistant", content, calls), "tool_calls" if calls and reason == "stop" else reason

    def _text(self, token_ids: list[int]) -> str:
        ended = bool(token_ids) and token_ids[-1] in self._model.end_ids
        # Special tokens stay: what was sampled is what is shown, and some models write their calls with them.
        return str(self._model.tokenizer.decode(token_ids[: len(token_ids) - ended], skip_special_tokens=False))


def sample_of(output: Output, finish_reason: str, address: str) -> Sample:
    """What is recorded. An engine that doesn't tell each token's version and log-probability can't be used."""
    try:
        return output.sample(finish_reason)
    except ValueError as error:
        raise engine_unavailable(address, f"its answer can't be recorded: {error}") from error
