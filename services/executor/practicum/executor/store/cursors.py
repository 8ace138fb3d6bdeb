"""A result is one event, or two when it completes its group: its cursors follow from its number."""

from __future__ import annotations


def trajectory_cursor(number: int) -> int:
    """The cursor of a result's trajectory."""
    return 2 * number


def group_cursor(number: int) -> int:
    """The cursor of the completion of the group that the result completes."""
    return 2 * number + 1


def end_of(number: int) -> int:
    """The cursor after which comes what follows this result."""
    return 2 * number + 1


def number_of(cursor: int) -> int:
    """The number of the result that a cursor belongs to."""
    return cursor // 2


def first_after(cursor: int) -> int:
    """The number of the first result of which something may come after a cursor."""
    return (cursor + 1) // 2
