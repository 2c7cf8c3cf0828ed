"""A cache of the newest checkpoints of threads, bounded by the bytes that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tenuto.integrations.langgraph.fold import Fold
from tenuto.lru_cache import LruCache
from tenuto.model import Session

_MOST_FOLDS: Final = 1024
_MOST_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class CachedFold:
    """A namespace of a thread, with the number of messages that its session had then."""

    fold: Fold
    messages: int

    def precedes(self, session: Session) -> bool:
        """Whether the session has only grown since."""
        grown = session.last_seq - self.fold.last_seq
        return session.incarnation == self.fold.incarnation and session.messages - self.messages == grown


class FoldCache(LruCache[tuple[str, ...], CachedFold]):
    """The newest checkpoints of threads that were used lately. One that has grown is to be put again."""

    def __init__(self) -> None:
        super().__init__(_MOST_FOLDS, most_weight=_MOST_BYTES, weigh=lambda cached: cached.fold.held_bytes())
