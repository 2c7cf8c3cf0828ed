"""A cache of bounded size: what was used last stays.

`cachetools` bounds the number or the weight of its entries, not both, and takes none that is heavier than all may be.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterator
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class LruCache(Generic[_Key, _Value]):
    """At most so many entries, together at most so heavy; the least recently used go first.

    A single one may be heavier. An entry is weighed when it is put, and again when it is put again.
    """

    def __init__(
        self, most: int, *, most_weight: int | None = None, weigh: Callable[[_Value], int] = lambda _: 0
    ) -> None:
        self._most = most
        self._most_weight = most_weight
        self._weigh = weigh
        self._entries: OrderedDict[_Key, _Value] = OrderedDict()
        self._weights: dict[_Key, int] = {}
        self.weight = 0
        self.peek: Callable[[_Key], _Value | None] = self._entries.get
        """The value, without using it."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: _Key) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[_Key]:
        """The keys, the least recently used first."""
        return iter(self._entries)

    def items(self) -> ItemsView[_Key, _Value]:
        """The entries, the least recently used first."""
        return self._entries.items()

    def get(self, key: _Key) -> _Value | None:
        """The value, which thereby counts as used."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: _Key, value: _Value) -> None:
        """Add or replace an entry, as the one used last; others make room."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if self._most_weight is not None:
            weight = self._weigh(value)
            self.weight += weight - self._weights.get(key, 0)
            self._weights[key] = weight
            while self.weight > self._most_weight and len(self._entries) > 1:
                self.drop_oldest()
        if len(self._entries) > self._most:
            self.drop_oldest()

    def pop(self, key: _Key) -> _Value | None:
        """Remove an entry, if it is there."""
        self.weight -= self._weights.pop(key, 0)
        return self._entries.pop(key, None)

    def drop_oldest(self) -> None:
        """Remove the least recently used entry."""
        self.pop(next(iter(self._entries)))

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()
        self._weights.clear()
        self.weight = 0
