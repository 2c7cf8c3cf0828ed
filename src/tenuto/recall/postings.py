"""The lexical arm of a memory index: BM25 in which a memory's neighbours count for a share.

What answers a question often stands beside what names its subject ("Where did you go?" - "To Kyoto."). The neighbours'
terms are added while a query runs, so no memory holds a copy of another's text, and one that is forgotten is gone.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Scores: TypeAlias = NDArray[np.float64]
Slots: TypeAlias = NDArray[np.int32]
Mask: TypeAlias = NDArray[np.bool_]

NEIGHBOUR_SHARE: Final = 0.5
"""How much a term of the memory before or after counts, beside the memory's own; two away, half of that."""
_K1: Final = 1.2
_B: Final = 0.6
# A posting is a slot and a count in one number: half the memory of two arrays.
COUNT_BITS: Final = 6
_MAX_COUNT: Final = (1 << COUNT_BITS) - 1
# What a term takes beside its postings: its text, its place in the table, its list.
_TERM_BYTES: Final = 320
_NONE: Final = np.empty(0, np.uint32)
# Terms are counted together in a table of about so many cells: one by one they cost calls, all at once memory.
_CELLS: Final = 65_536


class Matches(NamedTuple):
    """For each slot its BM25 score and the share of the query's weight that it holds."""

    scores: Scores
    coverage: Scores


class Visible(NamedTuple):
    """What a query may see: which slots, where their terms count, and what their lengths do to scores.

    `targets` has a row for the slots themselves and, where slots have neighbours, one for each side, then two away. Its
    numbers are slots; that of no slot, one behind the last, stands where there is none or none that is visible.
    """

    mask: Mask
    targets: Slots
    shares: Floats
    norm: Scores

    def nbytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.nbytes for part in self)


def make_visible(mask: Mask, previous: Slots, following: Slots, lengths: Floats) -> Visible:
    """What the mask lets a query see, from the slots that stand directly beside each slot (-1 where there is none)."""
    size = len(mask)
    rows, shares = [np.arange(size, dtype=np.int32)], [1.0]
    if (following >= 0).any():
        two_away = [np.append(beside, np.int32(-1))[beside] for beside in (previous, following)]
        rows += [previous, following, *two_away]
        shares += [NEIGHBOUR_SHARE] * 2 + [NEIGHBOUR_SHARE / 2] * 2
    targets = np.stack(rows)
    # The last place is that of no slot, which -1 names as well.
    targets[~(np.append(mask, np.False_)[targets] & mask)] = size
    weights = np.array(shares, np.float32)
    around = weights @ np.append(lengths, np.float32(0))[targets]
    average = float(around[mask].mean()) if mask.any() else 0.0
    norm = (_K1 * (1 - _B + _B * around / (average or 1.0))).astype(np.float64)
    return Visible(mask, targets, weights[:, None], norm)


class Postings:
    """Which slots hold which terms. A slot is a small number that the caller gives to a memory and may reuse."""

    def __init__(self) -> None:
        # Each entry holds its own key, so that all memories share one string.
        self._postings: dict[str, tuple[str, array[int]]] = {}
        self._count = 0

    def add(self, slot: int, counts: Mapping[str, int]) -> tuple[str, ...]:
        """Index the terms of a slot; returns them."""
        unique: list[str] = []
        for term, count in counts.items():
            key, postings = self._postings.setdefault(term, (term, array("I")))
            postings.append(slot << COUNT_BITS | min(count, _MAX_COUNT))
            unique.append(key)
        self._count += len(unique)
        return tuple(unique)

    def fill(self, vocabulary: Sequence[str], numbers: NDArray[np.uint32], entries: NDArray[np.uint32]) -> None:
        """Index terms that are not here yet, all at once: for each place in the vocabulary its slots with counts."""
        entries = entries[_stable_order(numbers)]
        ends = np.cumsum(np.bincount(numbers, minlength=len(vocabulary))).tolist()
        start = 0
        for term, end in zip(vocabulary, ends, strict=True):
            if end > start:
                self._postings[term] = (term, array("I", entries[start:end].tobytes()))
            start = end
        self._count += len(entries)

    def slots(self, term: str) -> list[int]:
        """The slots that hold a term."""
        entry = self._postings.get(term)
        return [posting >> COUNT_BITS for posting in entry[1]] if entry else []

    def discard(self, slot: int, terms: Sequence[str]) -> None:
        """Take a slot out of the postings of its terms."""
        for term in terms:
            _, postings = self._postings[term]
            place = int(np.flatnonzero(np.frombuffer(postings, np.uint32) >> COUNT_BITS == slot)[0])
            postings[place] = postings[-1]
            postings.pop()
            if not postings:
                del self._postings[term]
        self._count -= len(terms)

    def count(self, term: str) -> int:
        """How many slots hold a term."""
        entry = self._postings.get(term)
        return len(entry[1]) if entry else 0

    def nbytes(self) -> int:
        """Bytes of terms and postings, about."""
        return _TERM_BYTES * len(self._postings) + (self._count * 9 >> 1)

    def match(self, weights: Mapping[str, float], visible: Visible) -> Matches:
        """Score every slot; what is not visible counts nowhere, neither itself nor as a neighbour."""
        size, count = len(visible.mask), int(np.count_nonzero(visible.mask))
        scores, coverage, total_rarity = np.zeros(size), np.zeros(size), 0.0
        items = list(weights.items()) if count else []
        together = max(1, _CELLS // max(1, size))
        for start in range(0, len(items), together):
            batch = dict(items[start : start + together])
            rows, slots, frequency = self._frequencies(batch, visible)
            document_counts = np.bincount(rows, minlength=len(batch))
            rarity = np.array(list(batch.values())) * np.log1p(
                (count - document_counts + 0.5) / (document_counts + 0.5)
            )
            rarities = rarity[rows]
            scores += np.bincount(slots, rarities * (_K1 + 1) * frequency / (frequency + visible.norm[slots]), size)
            coverage += np.bincount(slots, rarities, size)
            total_rarity += float(rarity.sum())
        return Matches(scores, coverage / total_rarity if total_rarity else coverage)

    def _frequencies(self, terms: Iterable[str], visible: Visible) -> tuple[NDArray[np.intp], NDArray[np.intp], Scores]:
        """The numbers of terms and the slots where they count, and for how much."""
        width = len(visible.mask) + 1
        postings = [
            np.frombuffer(self._postings[term][1], np.uint32) if term in self._postings else _NONE for term in terms
        ]
        entries = np.concatenate(postings)
        cells = np.repeat(np.arange(0, len(postings) * width, width), list(map(len, postings)))
        cells = visible.targets[:, entries >> COUNT_BITS] + cells
        counts = visible.shares * (entries & _MAX_COUNT)
        table = np.bincount(cells.ravel(), counts.ravel(), len(postings) * width).reshape(len(postings), width)
        rows, slots = table[:, :-1].nonzero()
        return rows, slots, table[rows, slots].astype(np.float64, copy=False)


def _stable_order(numbers: NDArray[np.uint32]) -> NDArray[np.intp]:
    """The order of numbers, equal ones as they come: by 16 bits at a time, which takes linear time."""
    order = numbers.astype(np.uint16).argsort(kind="stable")
    high = (numbers >> 16).astype(np.uint16)
    return order[high[order].argsort(kind="stable")] if high.any() else order
