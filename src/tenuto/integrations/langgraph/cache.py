"""A cache of the newest checkpoints of threads, bounded by the bytes that it holds."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from tenuto.integrations.langgraph.fold import Fold
from tenuto.model import Session

_MOST_FOLDS: Final = 1024
_MOST_BYTES: Final = 64 * 1024 * 1024


@dataclass(slots=True)
class CachedFold:
    """A namespace of a thread, with the number of messages that its session had then."""

    fold: Fold
    messages: int
    counted: int = 0

    def precedes(self, session: Session) -> bool:
        """Whether the session has only grown since."""
        grown = session.last_seq - self.fold.last_seq
        return session.incarnation == self.fold.incarnation and session.messages - self.messages == grown


class FoldCache:
    """The newest checkpoints of threads that were used lately."""

    def __init__(self) -> None:
        self._folds: OrderedDict[tuple[str, ...], CachedFold] = OrderedDict()
        self._bytes = 0

    def get(self, key: tuple[str, ...]) -> CachedFold | None:
        """A namespace, which thereby counts as used."""
        found = self._folds.get(key)
        if found is not None:
            self._folds.move_to_end(key)
        return found

    def put(self, key: tuple[str, ...], cached: CachedFold) -> None:
        """Add a namespace, or count one that has grown; those unused for longest make room."""
        self.drop(key)
        self._folds[key] = cached
        cached.counted = cached.fold.held_bytes()
        self._bytes += cached.counted
        while len(self._folds) > _MOST_FOLDS or (self._bytes > _MOST_BYTES and len(self._folds) > 1):
            self.drop(next(iter(self._folds)))

    def drop(self, key: tuple[str, ...]) -> None:
        """Forget a namespace."""
        gone = self._folds.pop(key, None)
        self._bytes -= gone.counted if gone is not None else 0
