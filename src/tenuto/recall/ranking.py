"""Which of the found memories are returned: scores on one scale, no near-duplicates, then MMR."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, count
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tenuto.recall.postings import Floats, Mask, Scores, Slots

FEW_TERMS: Final = 3
"""Texts with fewer terms in common are not compared by them."""

_SESSION_BEST: Final = 3
_STEPS: Final = 1_000_000
# A product of more steps is given to threads by BLAS, whose start costs many times what such small ones take.
_STEPS_WITHOUT_THREADS: Final = 300_000


def min_max_normalize(scores: Floats, among: Mask) -> Floats:
    """From 0, the lowest score among those that count, to 1, the highest; the rest is 0."""
    eligible = scores[among]
    if not len(eligible):
        return np.zeros_like(scores)
    low, high = float(eligible.min()), float(eligible.max())
    if high - low < 1e-9:
        return np.where(among & (scores > 0), np.float32(1), np.float32(0))
    return np.where(among, (scores - low) / (high - low), np.float32(0)).astype(np.float32)


def pairwise_dot(rows: Floats) -> Floats:
    """The product of each row with each other one."""
    block = max(1, _STEPS_WITHOUT_THREADS // max(1, rows.size))
    across, products = rows.T, np.empty((len(rows), len(rows)), np.float32)
    for start in range(0, len(rows), block):
        np.matmul(rows[start : start + block], across, out=products[start : start + block])
    return products


def jaccard_similarities(term_lists: Sequence[Sequence[str]]) -> Floats:
    """The share of their different terms that each two texts have in common; 0 for a few, which say too little."""
    sizes = list(map(len, term_lists))
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    columns = np.fromiter(map(numbers.__getitem__, chain.from_iterable(term_lists)), np.intp, sum(sizes))
    incidence = np.zeros((len(term_lists), len(numbers)), np.float32)
    incidence[np.repeat(np.arange(len(term_lists)), sizes), columns] = 1
    both = pairwise_dot(incidence)
    different = both.diagonal()
    shares: Floats = both / np.maximum(different[:, None] + different - both, np.float32(1))
    shares[both < FEW_TERMS] = 0
    return shares


def session_scores(scores: Scores, sessions: Slots) -> Scores:
    """For each memory the mean of the three best scores of its session; one without a session (-1) has 0."""
    if sessions.max() < 0:
        return np.zeros(len(scores))
    order = np.lexsort((-scores, sessions))
    sorted_sessions, best = sessions[order], scores[order]
    # By session and score: whatever comes three places behind another one of its session is not among the three best.
    best[_SESSION_BEST:][sorted_sessions[_SESSION_BEST:] == sorted_sessions[:-_SESSION_BEST]] = 0
    sums = np.bincount(sorted_sessions + 1, best)
    sums[0] = 0
    session_means: Scores = sums[sessions + 1] / _SESSION_BEST
    return session_means


def top_k(scores: Scores, times: NDArray[np.float64], limit: int) -> NDArray[np.intp]:
    """Where the best scores stand, the newest of equal ones; all of the last score and time."""
    if len(scores) <= limit:
        return np.arange(len(scores))
    least = np.partition(scores, -limit)[-limit]
    places = np.flatnonzero(scores >= least)
    if len(places) > limit:
        better, when = scores[places] > least, times[places]
        open_places = limit - int(np.count_nonzero(better))
        places = places[better | (when >= np.partition(when[~better], -open_places)[-open_places])]
    return places


def rank_by_mmr(relevances: Sequence[float] | Scores, similarities: Floats, limit: int, mmr_lambda: float) -> list[int]:
    """Positions of the chosen candidates, best first; the candidates come in order of relevance.

    MMR takes the one with the greatest `mmr_lambda * relevance - (1 - mmr_lambda) * similarity to those taken`, the
    earlier one when two are equal. With `mmr_lambda` 1, or when there are no more than asked for, relevance alone
    orders them. Near-duplicates have to be dropped before: the penalty alone lets them back in as soon as relevance
    falls.
    """
    if mmr_lambda == 1 or len(relevances) <= limit:
        return list(range(min(limit, len(relevances))))
    # Whole numbers: equal candidates stay equal wherever they stand in a matrix product.
    worth = np.rint(np.multiply(relevances, mmr_lambda * _STEPS)).astype(np.int64)
    penalties = np.rint(similarities * ((1 - mmr_lambda) * _STEPS)).astype(np.int64)
    # What is taken is never worth taking again.
    np.fill_diagonal(penalties, 4 * _STEPS)
    penalty = np.zeros(len(worth), np.int64)
    selection: list[int] = []
    while len(selection) < limit:
        selection.append(int((worth - penalty).argmax()))
        np.maximum(penalty, penalties[selection[-1]], out=penalty)
    return selection


def drop_duplicates(similarities: Floats, duplicate_at: float) -> list[int]:
    """Positions of those that are less than `duplicate_at` alike to every better one that stays."""
    duplicates: set[int] = set()
    better, worse = (similarities >= duplicate_at).nonzero()
    for one, other in zip(better.tolist(), worse.tolist(), strict=True):
        if one < other and one not in duplicates:
            duplicates.add(other)
    return [place for place in range(len(similarities)) if place not in duplicates]
