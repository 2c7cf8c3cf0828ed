"""A cache of the newest checkpoints of threads, bounded by the bytes that it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tenuto.integrations.langgraph.projection import Projection
from tenuto.lru_cache import LruCache
from tenuto.model import Session

_MOST_FOLDS: Final = 1024
_MOST_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class CachedProjection:
    """A namespace of a thread, with the number of messages that its session had then."""

    projection: Projection
    messages: int

    def precedes(self, session: Session) -> bool:
        """Whether the session has only grown since."""
        growth = session.last_seq - self.projection.last_seq
        return session.incarnation == self.projection.incarnation and session.messages - self.messages == growth


class ProjectionCache(LruCache[tuple[str, ...], CachedProjection]):
    """The newest checkpoints of threads that were used lately. One that has grown is to be put again."""

    def __init__(self) -> None:
        super().__init__(_MOST_FOLDS, most_weight=_MOST_BYTES, weigh=lambda entry: entry.projection.memory_bytes())
