"""GAIA's scorer, case by case: as it was published, in our strict form, and why."""

from __future__ import annotations

import pytest

from practicum.env_gateway.scorers import gaia, gaia_published

# What the tag holds, the ground truth, the reward of both forms, and why.
BOTH = [
    ("17", "17", 1, "the same number"),
    ("17.0", "17", 1, "compared as floats"),
    ("017", "17", 1, "leading zeros mean nothing to a float"),
    (" 17\n", "17", 1, "white space around the answer is trimmed"),
    ("1 7", "17", 0, "a number has no spaces within"),
    ("+17", "17", 1, "a sign may be written"),
    ("-17", "17", 0, "another sign is another number"),
    ("-0.5", "-.5", 1, "a zero may be left out"),
    ("1e3", "1000", 1, "an exponent is a way to write a number"),
    ("$17", "17", 1, "dollars are stripped"),
    ("17 $", "17", 1, "wherever they stand"),
    ("17%", "17", 1, "percents are stripped"),
    ("0.17", "17%", 0, "a truth with a percent is no number, and not the same text"),
    ("17%", "17%", 1, "but the same text is right"),
    ("1,234", "1234", 1, "commas of thousands are stripped"),
    ("1,2,3,4", "1234", 1, "wherever they stand"),
    ("$1,234.50", "1234.5", 1, "all of it together"),
    ("1.234,50", "1234.5", 0, "commas are never decimal points"),
    ("€17", "17", 0, "other currencies are not stripped"),
    ("17 apples", "17", 0, "units are not stripped"),
    ("17 m", "17 m", 1, "a truth with a unit is text"),
    ("17m", "17 m", 1, "whose white space doesn't count"),
    ("17.0 m", "17 m", 0, "and which is no number any more"),
    ("seventeen", "17", 0, "words are not read as numbers"),
    ("18", "17", 0, "another number"),
    ("0.30000000000000004", "0.3", 0, "floats are compared exactly"),
    ("", "17", 0, "nothing is no number"),
    ("$", "17", 0, "nor are signs alone"),
    ("0x11", "17", 0, "hexadecimal isn't a float"),
    ("¹⁷", "17", 0, "nor are superscripts"),
    ("١٧", "17", 1, "digits of other scripts are digits to Python"),
    ("Paris", "paris", 1, "case doesn't count"),
    ("P a r i s!", "paris", 1, "nor do white space and punctuation"),
    ("St. Petersburg", "St Petersburg", 1, "a full stop is punctuation"),
    ("Saint Petersburg", "St Petersburg", 0, "but letters are letters"),
    ("it's", "its", 1, "so is an apostrophe"),
    ("rock-n-roll", "rock n roll", 1, "and a hyphen"),
    ("“Paris”", "Paris", 0, "typographic quotes are not ASCII punctuation"),
    ("Zürich", "Zurich", 0, "accents count"),
    ("The Paris", "Paris", 0, "articles count"),
    ("London", "Paris", 0, "another text"),
    ("", "Paris", 0, "nothing is not the text"),
    ("!", "?", 1, "of punctuation alone nothing is left, on either side"),
    ("Paris, France", "Paris", 0, "only the truth decides whether it is a list"),
    ("17.", "17", 1, "a float may end with its point"),
    ("a,b,c", "a, b, c", 1, "white space in a list doesn't count"),
    ("a; b, c", "a,b;c", 1, "either separator, mixed"),
    ("A,B", "a,b", 1, "case doesn't count in a list"),
    ("b, a", "a,b", 0, "order counts"),
    ("a, b", "a,b,c", 0, "length counts"),
    ("a,b,", "a,b", 0, "a separator at the end makes an empty element"),
    ("a,b,", "a,b,", 1, "which the truth may have as well"),
    ("a,a,b", "a,b", 0, "repeats count"),
    ("a b", "a,b", 0, "a space separates nothing"),
    ("it's, b", "its, b", 0, "punctuation counts within a list"),
    ("1, $2, 3%", "1,2,3", 1, "elements that are numbers are compared as numbers"),
    ("1.0, 2", "1;2.00", 1, "as floats"),
    ("1, x", "1, 2", 0, "a text is not the number"),
    ("ten, 2", "10, 2", 0, "nor is a word"),
    ("apples, 2.0", "apples, 2", 1, "texts and numbers in one list"),
    ("apples, 2", "2, apples", 0, "each at its place"),
    ("1,234, 5", "1234, 5", 0, "in a list a comma separates, also within a number"),
    ("1,234", "1,234", 1, "a truth with a comma is a list, though it may have meant a number"),
    ("1234", "1,234", 0, "and then the number is wrong"),
]
# The whole reply, the ground truth, the published form's reward, the strict form's, and why they differ.
GAPS = [
    ("<answer>whatever</answer>", "inf", 1, 0, "what can't be parsed is infinity there: any word is right"),
    ("<answer>inf</answer>", "inf", 1, 1, "the word itself is right in both"),
    ("<answer>INF</answer>", "inf", 1, 1, "and is a word: case doesn't count"),
    ("<answer>infinity</answer>", "inf", 1, 0, "another word for the same float"),
    ("<answer>-inf</answer>", "inf", 0, 1, "there another number; here punctuation doesn't count"),
    ("<answer>1e999</answer>", "inf", 1, 0, "it overflows to infinity"),
    ("<answer>nan</answer>", "nan", 0, 1, "no number equals not-a-number; as words they are the same"),
    ("<answer>x, 1</answer>", "inf, 1", 1, 0, "the same gap within a list"),
    ("<answer>1000.0</answer>", "1_000", 1, 0, "Python's own way to write numbers"),
    ("<answer>1_000</answer>", "1000", 1, 0, "in the answer too"),
    ("<answer>17</answer> or <answer>18</answer>", "17", 1, 0, "the first counts there: several tries are no answer"),
    ("<answer>18</answer> or <answer>17</answer>", "17", 0, 0, "and the second never does"),
    ("<answer>17</answer>, so <answer> 17 </answer>", "17", 1, 1, "the same answer twice is one"),
    ("<answer>17</answer> and <answer>17.0</answer>", "17", 1, 0, "written differently they are two"),
    ("<answer><answer>17</answer></answer>", "17", 0, 0, "a tag within a tag belongs to the answer"),
    ("<answer></answer><answer>17</answer>", "17", 0, 0, "an empty answer is one as well"),
    ("<answer>\n17\n</answer>", "17", 1, 1, "the tag may span lines"),
    ("<answer>1\n7</answer>", "17", 0, 0, "a number may not"),
    ("<ANSWER>17</ANSWER>", "17", 0, 0, "tags are in lower case"),
    ("<answer>17", "17", 0, 0, "a tag that is left open holds nothing"),
    ("17", "17", 0, 0, "without a tag there is no answer"),
    ("", "17", 0, 0, "nor in silence"),
]


@pytest.mark.parametrize(("answer", "truth", "reward", "why"), BOTH)
def test_both_forms_agree(answer: str, truth: str, reward: int, why: str) -> None:
    """Numbers, texts and lists."""
    reply = f"I think <answer>{answer}</answer> is right."
    assert (gaia_published(reply, truth).reward, gaia(reply, truth).reward) == (reward, reward), why


@pytest.mark.parametrize(("reply", "truth", "published", "strict", "why"), GAPS)
def test_the_strict_form_closes_what_can_be_gamed(
    reply: str, truth: str, published: int, strict: int, why: str
) -> None:
    """What can be gamed would be learned."""
    assert (gaia_published(reply, truth).reward, gaia(reply, truth).reward) == (published, strict), why
