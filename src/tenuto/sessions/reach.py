"""How far back the prompts of sessions reach, as their last turns in this process found it."""

from __future__ import annotations

from typing import Final

from tenuto.lru_cache import LruCache
from tenuto.model import Scope
from tenuto.model.policy import MOST_LOADED
from tenuto.model.scope import session_key

_MOST_SESSIONS: Final = 10_000
# The messages of a turn or two, with their tools.
_GROWTH: Final = 16


class PromptReach:
    """Tells how many messages to load with a turn, so that older ones need no second read; a guess, and no more."""

    def __init__(self) -> None:
        self._counts = LruCache[bytes, int](_MOST_SESSIONS)

    def guess(self, scope: Scope, session_id: str | None) -> int:
        """How many messages the next prompt may hold; 0 if unknown."""
        count = self._counts.peek(session_key(scope, session_id)) if session_id else 0
        return min(count + _GROWTH, MOST_LOADED) if count else 0

    def note(self, scope: Scope, session_id: str, count: int) -> None:
        """Remember how many messages no summary covers."""
        self._counts.put(session_key(scope, session_id), count)
