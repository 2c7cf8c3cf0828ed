"""Whether a server that stops answering is still asked: a circuit breaker, without a timer and without a task.

Closed, every call goes through. So many failures in a row open it, and calls are refused at once. When its time is up
one call goes through as the probe, while all others are refused: its answer closes the breaker, its failure opens it
for a full period again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum

from tenuto.model.values import Value


class BreakerPolicy(Value, frozen=True, kw_only=True):
    """How many failures in a row open it, and how long it stays open before it tries again."""

    failures: int = 5
    reset: timedelta = timedelta(seconds=30)


class BreakerState(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """Counts failures and decides who may ask.

    Each change of state begins a new generation. A call carries the generation that `admit` gave it, and what it
    reports after the next one has begun says nothing about it and is ignored.
    """

    def __init__(self, policy: BreakerPolicy | None = None, *, now: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy or BreakerPolicy()
        self._reset = self._policy.reset.total_seconds()
        self._now = now
        self._generation = 0
        self._failures = 0
        self._until = 0.0
        self.state = BreakerState.CLOSED
        self.refused = 0
        """How many calls it has turned away."""

    @property
    def rest(self) -> timedelta:
        """How long it will refuse for certain; nothing while it is closed or a probe is under way."""
        if self.state is not BreakerState.OPEN:
            return timedelta(0)
        return timedelta(seconds=max(0.0, self._until - self._now()))

    def admit(self) -> int | None:
        """Let a call through, with its generation; `None` turns it away."""
        if self.state is BreakerState.CLOSED:
            return self._generation
        if self.state is BreakerState.OPEN and self._now() >= self._until:
            self._transition(BreakerState.HALF_OPEN)
            return self._generation
        self.refused += 1
        return None

    def record_success(self, generation: int) -> None:
        """A call was answered: the count begins anew, and a probe closes the breaker."""
        if generation == self._generation:
            self._failures = 0
            if self.state is not BreakerState.CLOSED:
                self._transition(BreakerState.CLOSED)

    def record_failure(self, generation: int) -> None:
        """A call was not answered: one more in a row, or a probe that opens the breaker for a full period again."""
        if generation != self._generation:
            return
        self._failures += 1
        if self.state is BreakerState.HALF_OPEN or self._failures >= self._policy.failures:
            self._until = self._now() + self._reset
            self._transition(BreakerState.OPEN)

    def release_probe(self, generation: int) -> None:
        """A call ended without telling anything of the server: if it was the probe, the next call is."""
        if generation == self._generation and self.state is BreakerState.HALF_OPEN:
            self._transition(BreakerState.OPEN)

    def _transition(self, state: BreakerState) -> None:
        self._generation += 1
        self._failures = 0
        self.state = state
