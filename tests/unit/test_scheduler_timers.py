"""What is due, in time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from practicum.executor.scheduling.timers import MIN_ROOM, Timers

TIMES = st.lists(st.tuples(st.integers(0, 1_000), st.booleans()), min_size=2 * MIN_ROOM, max_size=5 * MIN_ROOM)


@settings(max_examples=20, deadline=None)
@given(TIMES, st.integers(0, 1_000))
def test_what_counts_is_due_in_order_of_time(times: list[tuple[int, bool]], now: int) -> None:
    """However often the heap was swept of what no longer counts."""
    counting = set(range(len(times)))
    timers: Timers[int] = Timers(counting.__contains__)
    for item, (due, counts) in enumerate(times):
        timers.add(due, item)
        if not counts:
            counting.discard(item)
    assert len(timers) <= 2 * (len(counting) + 1) + MIN_ROOM  # One that was just added counted when it was swept.
    due = sorted((times[item][0], item) for item in counting)
    assert timers.next_due() == (due[0][0] if due else None)
    assert timers.pop(now) == [item for time, item in due if time <= now]
    assert timers.pop(1_000) == [item for time, item in due if time > now]
    assert timers.next_due() is None
