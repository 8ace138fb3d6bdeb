"""Policy versions in the engine's words, and back.

vLLM stamps tokens with a free text. The proxy writes `VERSION PATH` there, so that a proxy that starts anew learns from
the engine which version it serves and where its files are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from practicum.inference_proxy.graph import Span

UNTOUCHED = "default"


def label(version: int, path: str) -> str:
    """What an engine is told."""
    return f"{version} {path}"


def parse_label(text: str) -> tuple[int, str]:
    """Version and path. An engine that was never updated serves version 0.

    Raises ValueError for a label that is none of ours: somebody else updates the engine, and its versions mean nothing.
    """
    if text == UNTOUCHED:
        return 0, ""
    version, _, path = text.partition(" ")
    return int(version), path


def spans_of(reported: Iterable[Mapping[str, Any]], *, tokens: int) -> tuple[Span, ...]:
    """The engine's spans over the sampled tokens. Raises ValueError unless they cover each exactly once, in order."""
    spans: list[Span] = []
    covered = 0
    for entry in reported:
        start, end = int(entry["start"]), int(entry["end"])
        if start == end:
            continue
        if start != covered or end < start:
            raise ValueError(f"span {start}–{end} after {covered} tokens")
        spans.append(Span(parse_label(entry["version"])[0], start, end))
        covered = end
    if covered != tokens:
        raise ValueError(f"spans cover {covered} of {tokens} tokens")
    return merged(spans)


def merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Neighbours of the same version as one."""
    result: list[Span] = []
    for span in spans:
        if result and result[-1].version == span.version:
            result[-1] = Span(span.version, result[-1].start, span.end)
        else:
            result.append(span)
    return tuple(result)
