"""When services are started again."""

from __future__ import annotations

from practicum.cli.restarts import MAX_IN_A_ROW, STEADY_SECONDS, Restarts


def test_the_delay_doubles_from_one_end_to_the_next() -> None:
    """Half a second, then one."""
    restarts = Restarts()
    restarts.started(0.0)
    assert restarts.due(1.0) is False
    assert restarts.due(1.5) is True
    restarts.started(1.5)
    assert restarts.due(2.0) is False
    assert restarts.due(2.5) is False
    assert restarts.due(3.0) is True
    assert restarts.total == 2


def test_a_service_that_ends_again_and_again_is_given_up() -> None:
    """After five in a row."""
    restarts, now = Restarts(), 0.0
    for _ in range(MAX_IN_A_ROW):
        restarts.started(now)
        assert restarts.due(now) is False
        now += 60.0
        assert restarts.due(now) is True
    restarts.started(now)
    assert restarts.due(now) is None


def test_ends_are_forgotten_after_a_steady_while() -> None:
    """Years of service have room for many."""
    restarts, now = Restarts(), 0.0
    for _ in range(10 * MAX_IN_A_ROW):
        restarts.started(now)
        now += STEADY_SECONDS
        assert restarts.due(now) is False
        now += 1.0
        assert restarts.due(now) is True
