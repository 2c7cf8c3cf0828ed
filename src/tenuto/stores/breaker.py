"""A circuit breaker without a timer or a task.

Closed, every call goes through. A number of failures in a row opens it, and calls are rejected at once. After its reset
time one call goes through as the probe: its answer closes the breaker, its failure opens it for another period.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from enum import StrEnum
from typing import Protocol

from tenuto.model.values import Value


class BreakerPolicy(Value, frozen=True, kw_only=True):
    """How many failures in a row open it, and how long it stays open."""

    failures: int = 5
    reset: timedelta = timedelta(seconds=30)


class BreakerState(StrEnum):
    """The state of a breaker."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class CircuitState(Protocol):
    """A circuit breaker before the store, as it is at present."""

    @property
    def state(self) -> BreakerState:
        """Whether it lets calls through; of several breakers, the one that is furthest from closed."""
        ...

    @property
    def closed(self) -> bool:
        """Whether every call goes through."""
        ...

    @property
    def rejected(self) -> int:
        """The number of rejected calls."""
        ...


class Breaker:
    """Counts failures and admits calls.

    Each change of state begins a new generation. A call carries the generation that `admit` gave it; outcomes of
    earlier generations are ignored.
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
        """The number of rejected calls."""

    @property
    def rest(self) -> timedelta:
        """How long it will reject calls; zero while it is closed or half-open."""
        if self.state is not BreakerState.OPEN:
            return timedelta(0)
        return timedelta(seconds=max(0.0, self._until - self._now()))

    def admit(self) -> int | None:
        """Admit a call with its generation; `None` rejects it."""
        if self.state is BreakerState.CLOSED:
            return self._generation
        if self.state is BreakerState.OPEN and self._now() >= self._until:
            self._transition(BreakerState.HALF_OPEN)
            return self._generation
        self.refused += 1
        return None

    def expire(self) -> None:
        """The server is known to answer again: the next call is the probe."""
        self._until = self._now()

    def record_success(self, generation: int) -> None:
        """A call was answered: reset the count; a probe closes the breaker."""
        if generation == self._generation:
            self._failures = 0
            if self.state is not BreakerState.CLOSED:
                self._transition(BreakerState.CLOSED)

    def record_failure(self, generation: int) -> None:
        """A call was not answered: count it; a probe opens the breaker again."""
        if generation != self._generation:
            return
        self._failures += 1
        if self.state is BreakerState.HALF_OPEN or self._failures >= self._policy.failures:
            self._until = self._now() + self._reset
            self._transition(BreakerState.OPEN)

    def release_probe(self, generation: int) -> None:
        """A call ended without an outcome: if it was the probe, the next call is."""
        if generation == self._generation and self.state is BreakerState.HALF_OPEN:
            self._transition(BreakerState.OPEN)

    def _transition(self, state: BreakerState) -> None:
        self._generation += 1
        self._failures = 0
        self.state = state
