"""The lexical arm of a memory index: BM25 in which a memory's neighbours count for a share.

What answers a question often stands beside what names its subject ("Where did you go?" - "To Kyoto."). The neighbours'
terms are added while a query runs, so no memory holds a copy of another's text, and one that is forgotten is gone.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from sys import getsizeof
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Slots: TypeAlias = NDArray[np.int32]
Mask: TypeAlias = NDArray[np.bool_]

NEIGHBOUR_SHARE: Final = 0.5
"""How much a term of the memory before or after counts, beside the memory's own; two away, half of that."""
_K1: Final = 1.2
_B: Final = 0.6
# A posting is a slot and a count in one number: half the memory of two arrays.
_COUNT_BITS: Final = 6
_MAX_COUNT: Final = (1 << _COUNT_BITS) - 1


class Matches(NamedTuple):
    """For each slot its BM25 score and the share of the query's weight that it holds."""

    scores: Floats
    coverage: Floats


class Neighbours(NamedTuple):
    """Slots beside each slot in its session, -1 where there is none, and what their terms count there."""

    slots: Slots
    share: float


def find_neighbours(previous: Slots, following: Slots) -> list[Neighbours]:
    """The neighbours on both sides, up to two away, from those that stand directly beside each slot."""
    found: list[Neighbours] = []
    for beside in (previous, following):
        two_away = np.append(beside, np.int32(-1))[beside]
        found += [Neighbours(beside, NEIGHBOUR_SHARE), Neighbours(two_away, NEIGHBOUR_SHARE / 2)]
    return found


class Postings:
    """Which slots hold which terms. A slot is a small number that the caller gives to a memory and may reuse."""

    def __init__(self) -> None:
        # Each entry holds its own key, so that all memories share one string.
        self._postings: dict[str, tuple[str, array[int]]] = {}

    def add(self, slot: int, found: Iterable[str]) -> tuple[tuple[str, ...], int]:
        """Index the terms of a slot; returns the different ones, and how many there are in all."""
        counts = Counter(found)
        held: list[str] = []
        for term, count in counts.items():
            key, postings = self._postings.setdefault(term, (term, array("I")))
            postings.append(slot << _COUNT_BITS | min(count, _MAX_COUNT))
            held.append(key)
        return tuple(held), counts.total()

    def discard(self, slot: int, held: Iterable[str]) -> None:
        """Take a slot out of the postings of its terms."""
        for term in held:
            _, postings = self._postings[term]
            place = int(np.flatnonzero(np.frombuffer(postings, np.uint32) >> _COUNT_BITS == slot)[0])
            postings[place] = postings[-1]
            postings.pop()
            if not postings:
                del self._postings[term]

    def count(self, term: str) -> int:
        """How many slots hold a term."""
        entry = self._postings.get(term)
        return len(entry[1]) if entry else 0

    def nbytes(self) -> int:
        """Bytes of terms and postings."""
        held = sum(getsizeof(entry) + getsizeof(entry[0]) + getsizeof(entry[1]) for entry in self._postings.values())
        return getsizeof(self._postings) + held

    def match(
        self, weights: Mapping[str, float], lengths: Floats, near: Sequence[Neighbours], visible: Mask
    ) -> Matches:
        """Score every slot; what is not `visible` counts nowhere, neither itself nor as a neighbour."""
        size = len(lengths)
        scores, coverage = np.zeros(size, np.float32), np.zeros(size, np.float32)
        count = int(np.count_nonzero(visible))
        if not count:
            return Matches(scores, coverage)
        own = np.append(np.where(visible, lengths, 0), np.float32(0))
        around = own[:-1] + sum(share * own[slots] for slots, share in near)
        norm = _K1 * (1 - _B + _B * around / (float(around[visible].mean()) or 1.0))
        whole = 0.0
        for term, weight in weights.items():
            held, frequency = self._frequencies(term, size, near, visible)
            rarity = weight * float(np.log1p((count - len(held) + 0.5) / (len(held) + 0.5)))
            whole += rarity
            scores[held] += rarity * (_K1 + 1) * frequency / (frequency + norm[held])
            coverage[held] += rarity
        return Matches(scores, coverage / whole if whole else coverage)

    def _frequencies(self, term: str, size: int, near: Sequence[Neighbours], visible: Mask) -> tuple[Slots, Floats]:
        """The slots where a term counts, and for how much."""
        entry = self._postings.get(term)
        packed = np.frombuffer(entry[1], np.uint32) if entry else np.empty(0, np.uint32)
        slots = (packed >> _COUNT_BITS).astype(np.int32)
        counts = (packed & _MAX_COUNT).astype(np.float32) * visible[slots]
        # The last place takes what has no neighbour (-1).
        dense = np.zeros(size + 1, np.float32)
        dense[slots] = counts
        for beside, share in near:
            dense[beside[slots]] += share * counts
        dense = np.where(visible, dense[:-1], 0)
        held = np.flatnonzero(dense).astype(np.int32)
        return held, dense[held]
