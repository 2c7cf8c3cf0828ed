"""Which of the found memories are returned: scores on one scale, no near-duplicates, then MMR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tenuto.recall.postings import Floats, Mask, Slots

_SESSION_BEST: Final = 3
# A product of more steps is given to threads by BLAS, whose start costs many times what such small ones take.
_STEPS_WITHOUT_THREADS: Final = 300_000


def scale_to_one(scores: Floats, among: Mask) -> Floats:
    """From 0, the lowest score among those that count, to 1, the highest; the rest is 0."""
    chosen = scores[among]
    if not len(chosen):
        return np.zeros_like(scores)
    low, high = float(chosen.min()), float(chosen.max())
    if high - low < 1e-9:
        return np.where(among & (scores > 0), np.float32(1), np.float32(0))
    return np.where(among, (scores - low) / (high - low), np.float32(0)).astype(np.float32)


def multiply_pairs(rows: Floats) -> Floats:
    """The product of each row with each other one."""
    block = max(1, _STEPS_WITHOUT_THREADS // max(1, rows.size))
    across, products = rows.T, np.empty((len(rows), len(rows)), np.float32)
    for start in range(0, len(rows), block):
        np.matmul(rows[start : start + block], across, out=products[start : start + block])
    return products


def session_scores(scores: Floats, sessions: Slots) -> Floats:
    """For each memory the mean of the three best scores of its session; one without a session (-1) has 0."""
    order = np.lexsort((-scores, sessions))
    places = np.empty(len(order), np.int64)
    starts = np.flatnonzero(np.diff(sessions[order], prepend=-2))
    places[order] = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    best = np.where((places < _SESSION_BEST) & (sessions >= 0), scores, 0)
    return (np.bincount(sessions + 1, best)[sessions + 1] / _SESSION_BEST).astype(np.float32)


def rank_by_mmr(
    relevances: Sequence[float], similarities: Floats, limit: int, diversity: float, duplicate_at: float
) -> list[int]:
    """Positions of the chosen candidates, best first.

    The candidates come in order of relevance. First, one that is at least `duplicate_at` alike to a better one is
    dropped: the penalty of MMR alone lets near-duplicates back in as soon as relevance falls. Of the rest, MMR takes
    the one with the greatest `diversity * relevance - (1 - diversity) * similarity to those taken`, the earlier one
    when two are equal. With `diversity` 1, or when no more are left than asked for, relevance alone orders them.
    """
    kept = drop_duplicates(similarities, duplicate_at)
    if diversity == 1 or len(kept) <= limit:
        return kept[:limit]
    relevance = np.asarray(relevances, np.float64)[kept]
    alike = similarities[np.ix_(kept, kept)]
    nearest = np.zeros(len(kept))
    taken: list[int] = []
    while len(taken) < limit:
        worth = diversity * relevance - (1 - diversity) * nearest
        worth[taken] = -np.inf
        # Rounded: equal candidates stay equal wherever they stand in a matrix product.
        best = int(np.argmax(worth.round(6)))
        taken.append(best)
        nearest = np.maximum(nearest, alike[best])
    return [kept[place] for place in taken]


def drop_duplicates(similarities: Floats, duplicate_at: float) -> list[int]:
    """Positions of those that are less than `duplicate_at` alike to every better one that stays."""
    gone: set[int] = set()
    for better, worse in np.argwhere(np.triu(similarities >= duplicate_at, 1)).tolist():
        if better not in gone:
            gone.add(worse)
    return [place for place in range(len(similarities)) if place not in gone]
