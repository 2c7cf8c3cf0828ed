"""Clocks that move only when a test moves them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 15, 9, 0, tzinfo=UTC)


class FakeClock:
    """Stands wherever a clock is asked for: `clock()` and `clock.now()` give the same aware UTC instant.

    `advance` takes negative durations too, because real clocks go backwards.
    """

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise ValueError("FakeClock starts at an aware datetime")
        self._now = start.astimezone(UTC)

    def __call__(self) -> datetime:
        return self._now

    def now(self) -> datetime:
        """The instant the clock shows."""
        return self._now

    def advance(self, by: timedelta) -> datetime:
        """Move the clock and return the new instant."""
        self._now += by
        return self._now


class Ticks:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
