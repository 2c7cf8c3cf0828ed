"""Pauses before something is tried again."""

from __future__ import annotations

from tenuto.pauses import Backoff


def pauses(backoff: Backoff, count: int) -> list[float]:
    """The next ones."""
    return [backoff.next_pause() for _ in range(count)]


def test_each_pause_is_twice_the_one_before_up_to_the_longest() -> None:
    backoff = Backoff(1, 5, jitter=0)

    assert pauses(backoff, 5) == [1, 2, 4, 5, 5]
    assert backoff.failures == 5


def test_jitter_shortens_a_pause_by_up_to_its_share() -> None:
    least, most = Backoff(2, 8, jitter=0.25, chance=lambda: 1.0), Backoff(2, 8, jitter=0.25, chance=lambda: 0.0)

    assert pauses(least, 3) == [1.5, 3, 6]
    assert pauses(most, 3) == [2, 4, 8]


def test_after_a_success_the_first_pause_is_next() -> None:
    backoff = Backoff(1, 8, jitter=0)
    pauses(backoff, 3)

    backoff.reset()

    assert pauses(backoff, 2) == [1, 2]


def test_thousands_of_failures_are_no_overflow() -> None:
    backoff = Backoff(1, 8, jitter=0)

    assert pauses(backoff, 3000)[-1] == 8
