"""Scorers against the published behaviour of GAIA's, and against what must hold for any answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from practicum.env_gateway.scorers import SCORERS, exact, gaia, gaia_published

WORDS = st.text(st.characters(exclude_characters="<>", exclude_categories=["Cs"]), max_size=20)
ANYTHING = st.text(max_size=40) | WORDS.map("<answer>{}</answer>".format)


def tagged(answer: str) -> str:
    """An answer as agents give it."""
    return f"I think <answer>{answer}</answer> is right."


@pytest.mark.parametrize("scorer", [gaia, gaia_published])
def test_without_a_tag_there_is_no_reward(scorer: type) -> None:
    """Even for the right answer."""
    score = scorer("17", "17")
    assert (score.reward, score.reason) == (0, "no <answer> tag")
    assert scorer("<answer>17", "17").reward == 0
    assert scorer("<answer>1\n7</answer>", "17").reward == 0
    assert scorer("<answer>\n17\n</answer>", "17").reward == 1


@pytest.mark.parametrize(
    ("answer", "truth", "reward"),
    [
        ("17", "17", 1),
        (" 17\n", "17 ", 1),
        (tagged(" 17 "), "17", 1),
        ("<answer>17</answer><answer>17</answer>", "17", 1),
        ("<answer>17</answer><answer>18</answer>", "17", 0),
        ("17.0", "17", 0),
        ("It is 17", "17", 0),
        ("Paris", "paris", 0),
        ("", "17", 0),
    ],
)
def test_exact_takes_the_answer_itself(answer: str, truth: str, reward: int) -> None:
    """What the tags hold, or all of it without tags."""
    assert exact(answer, truth).reward == reward


@given(answer=ANYTHING, truth=ANYTHING, name=st.sampled_from(sorted(SCORERS)))
def test_every_answer_has_a_score(answer: str, truth: str, name: str) -> None:
    """0 or 1, told by the scorer's name, whatever a model writes."""
    score = SCORERS[name](answer, truth)
    assert score.reward in (0, 1)
    assert score.parts == {name: score.reward}
    assert score.reason


@given(words=WORDS)
def test_the_truth_itself_is_right(words: str) -> None:
    """For the two scorers that we stand for, whatever the truth is."""
    assert gaia(tagged(words), words).reward == 1
    assert exact(tagged(words), words).reward == 1


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_may_be_written_with_signs(value: float) -> None:
    """Thousands, dollars, percents."""
    assert gaia(tagged(f"${value:,.6f}%"), f"{value:.6f}").reward == 1


@given(words=st.lists(st.text("abc123", min_size=1), min_size=2, max_size=5), space=st.sampled_from(["", " ", "\n"]))
def test_lists_may_be_spaced_and_written_in_capitals(words: list[str], space: str) -> None:
    """But not reordered or shortened."""
    truth = ",".join(words)
    assert gaia(tagged(f";{space}".join(words).upper()), truth).reward == 1
    assert gaia(tagged(",".join(words[:-1])), truth).reward == 0
