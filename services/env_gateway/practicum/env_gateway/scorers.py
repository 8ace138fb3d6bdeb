"""Scorers: pure functions from an answer and the ground truth to a reward."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable
from dataclasses import dataclass, field

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
SEPARATOR = re.compile(r"[,;]")
NUMBER_SIGNS = str.maketrans("", "", "$%,")
PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class Score:
    """A reward, its parts by name, and why in a few words."""

    reward: float
    reason: str
    parts: dict[str, float] = field(default_factory=dict)


Scorer = Callable[[str, str], Score]


def exact(answer: str, truth: str) -> Score:
    """1 when the answer is the ground truth, white space around it aside, else 0.

    The answer is what its `<answer>` tags hold, or all of it without tags. Several answers that differ are wrong.
    """
    answers = {found.strip() for found in ANSWER.findall(answer)} or {answer.strip()}
    if len(answers) > 1:
        return Score(0.0, "several different answers", {"exact": 0.0})
    return scored("exact", answers == {truth.strip()})


def gaia(answer: str, truth: str) -> Score:
    """GAIA's scorer without its gaps: several differing answers are wrong, `inf` and `nan` are words."""
    answers = {found.strip() for found in ANSWER.findall(answer)}
    if len(answers) != 1:
        return Score(0.0, "several different answers" if answers else "no <answer> tag", {"gaia": 0.0})
    return scored("gaia", equal(answers.pop(), truth, strict_number))


def gaia_published(answer: str, truth: str) -> Score:
    """GAIA's scorer as published: the first `<answer>` counts, and what can't be parsed is infinity."""
    first = ANSWER.search(answer)
    if first is None:
        return Score(0.0, "no <answer> tag", {"gaia-published": 0.0})
    return scored("gaia-published", equal(first[1].strip(), truth, published_number))


SCORERS: dict[str, Scorer] = {"exact": exact, "gaia": gaia, "gaia-published": gaia_published}

Number = Callable[[str], float | None]


def scored(name: str, right: bool) -> Score:
    """1 or 0."""
    return Score(float(right), "right" if right else "wrong", {name: float(right)})


def equal(answer: str, truth: str, number: Number) -> bool:
    """GAIA's comparison: as numbers, as lists, or as texts, whichever the ground truth is."""
    if number(truth) is not None:
        return same_number(answer, truth, number)
    if SEPARATOR.search(truth):
        wanted, given = SEPARATOR.split(truth), SEPARATOR.split(answer)
        return len(wanted) == len(given) and all(
            same_number(one, other, number) if number(other) is not None else squeezed(one) == squeezed(other)
            for one, other in zip(given, wanted, strict=True)
        )
    return squeezed(answer).translate(PUNCTUATION) == squeezed(truth).translate(PUNCTUATION)


def same_number(answer: str, truth: str, number: Number) -> bool:
    """Whether the answer, `$`, `%` and `,` stripped, is the same number."""
    value = number(answer.translate(NUMBER_SIGNS))
    if value is None and number is published_number:
        value = math.inf
    return value is not None and value == number(truth)


def published_number(text: str) -> float | None:
    """Whatever Python takes for a float: `inf`, `nan` and `1_000` too."""
    try:
        return float(text)
    except ValueError:
        return None


def strict_number(text: str) -> float | None:
    """A finite number as people write it."""
    value = published_number(text)
    return value if value is not None and math.isfinite(value) and "_" not in text else None


def squeezed(text: str) -> str:
    """Lower case without white space."""
    return "".join(text.split()).lower()
