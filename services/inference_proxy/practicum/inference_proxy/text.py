"""What of an answer's text may be shown."""

from __future__ import annotations

from collections.abc import Sequence

UNFINISHED = "\ufffd"
"""What the first bytes of a character decode to."""


def cut_at(text: str, marks: Sequence[str]) -> str:
    """The text before the first of the marks."""
    found = [place for mark in marks if (place := text.find(mark)) >= 0]
    return text[: min(found)] if found else text


def settled(text: str, marks: Sequence[str]) -> str:
    """What of a growing text is sure to stay: neither the beginning of a mark nor of a character at its end."""
    cut = cut_at(text, marks)
    if len(cut) < len(text):
        return cut
    held = max((overlap(text, mark) for mark in marks), default=0)
    return text[: len(text) - held].rstrip(UNFINISHED)


def overlap(text: str, mark: str) -> int:
    """How many characters at the text's end begin the mark."""
    return next((size for size in range(min(len(mark), len(text)), 0, -1) if text.endswith(mark[:size])), 0)
