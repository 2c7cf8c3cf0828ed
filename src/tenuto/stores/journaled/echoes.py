"""Which news of the feed are of our own changes: each is told once, shortly before or after the store's answer.

A call is counted from before it is sent. What is heard beyond the count is somebody else's, and so is what was taken
for the news of a call that turns out to have changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# On a machine that stands still for a moment news may take seconds.
_HEARD_WITHIN: Final = 10.0
_MOST_SESSIONS: Final = 10_000


@dataclass(slots=True)
class _Owed:
    under_way: int = 0
    """Calls that have not come back."""
    unheard: int = 0
    """News of our own that have not been heard."""
    until: float = 0.0
    """When the oldest of them is overdue."""
    overtaken: bool = False
    """Whether somebody else changed the session while calls were under way: their answers may be old."""


class Echoes:
    """Counts, for each session, our calls under way and the news that are still to come of them."""

    def __init__(self, ticks: Callable[[], float]) -> None:
        self._ticks = ticks
        self._owed: dict[bytes, _Owed] = {}

    def sent(self, key: bytes, *, changing: bool) -> bytes | None:
        """A call is on its way. Returns a session that is not watched any more, where there are too many."""
        owed = self._owed.get(key)
        if owed is None:
            owed = self._owed[key] = _Owed()
        owed.under_way += 1
        if changing:
            self._expect(owed)
        if len(self._owed) <= _MOST_SESSIONS:
            return None
        dropped = next(iter(self._owed))
        del self._owed[dropped]
        return dropped

    def came_back(self, key: bytes, *, unchanged: bool = False) -> bool:
        """A call came back, and changed what it was sent for, or nothing; tells whether its answer is the last word."""
        owed = self._owed.get(key)
        if owed is None:
            return False
        owed.under_way -= 1
        if unchanged and owed.unheard:
            owed.unheard -= 1
        elif unchanged:
            owed.overtaken = True
        current = not owed.overtaken
        self._settle(key, owed)
        return current

    def came_back_silent(self, key: bytes) -> None:
        """A call came back whose news, if there are any, have been heard."""
        owed = self._owed.get(key)
        if owed is not None:
            owed.under_way -= 1
            owed.unheard = max(0, owed.unheard - 1)
            self._settle(key, owed)

    def heard(self, key: bytes) -> bool:
        """A session changed; tells whether that was our doing."""
        owed = self._owed.get(key)
        if owed is None:
            return False
        if owed.unheard and self._ticks() < owed.until:
            owed.unheard -= 1
            self._settle(key, owed)
            return True
        owed.unheard, owed.overtaken = 0, True
        self._settle(key, owed)
        return False

    def lost(self) -> list[bytes]:
        """The feed lost track: what it has not told of calls that came back, it never will. Returns those overdue.

        News that were still on their way say nothing against a session: they come in the order of the changes, so
        somebody else's before them would have shown in the version that our call was answered with.
        """
        late = [key for key, owed in self._owed.items() if owed.unheard > owed.under_way]
        overdue = [key for key in late if self.overdue(key)]
        for key in late:
            owed = self._owed[key]
            owed.unheard = owed.under_way
            self._settle(key, owed)
        return overdue

    def overdue(self, key: bytes) -> bool:
        """Whether news of ours did not come: then it is not known which were heard in their place."""
        owed = self._owed.get(key)
        return owed is not None and owed.unheard > 0 and self._ticks() >= owed.until

    def write_off(self, key: bytes) -> None:
        """Wait no longer for what is overdue."""
        owed = self._owed.get(key)
        if owed is not None:
            owed.unheard = 0
            self._settle(key, owed)

    def _expect(self, owed: _Owed) -> None:
        if not owed.unheard:
            owed.until = self._ticks() + _HEARD_WITHIN
        owed.unheard += 1

    def _settle(self, key: bytes, owed: _Owed) -> None:
        if not owed.under_way and not owed.unheard:
            del self._owed[key]
        elif not owed.under_way:
            owed.overtaken = False
