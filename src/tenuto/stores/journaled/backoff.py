"""How long the store is not asked for a session after a call about it was in vain; others' calls go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tenuto.errors import CircuitOpen, StoreUnavailable

# A call that was given up may still be carried out, until its connection is found dead as well, and reset.
_MAY_STILL_ARRIVE: Final = 3.0


class SessionBackoff:
    """Until when each session is left alone: for `every` second, or until nothing can arrive any more."""

    def __init__(self, every: float, ticks: Callable[[], float]) -> None:
        self._every = every
        self._ticks = ticks
        self._until: dict[bytes, float] = {}

    def __len__(self) -> int:
        return len(self._until)

    def start(self, key: bytes, away: StoreUnavailable) -> None:
        """A call was not answered, or not even sent."""
        pause = self._every if isinstance(away, CircuitOpen) else max(self._every, _MAY_STILL_ARRIVE)
        self._until[key] = max(self.until(key), self._ticks() + pause)

    def clear(self, key: bytes) -> None:
        """Nothing of the session waits."""
        self._until.pop(key, None)

    def until(self, key: bytes) -> float:
        """When it is over."""
        return self._until.get(key, 0.0)

    def lasts(self, key: bytes) -> bool:
        """Whether it is not."""
        return self._ticks() < self.until(key)
