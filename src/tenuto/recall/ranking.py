"""Which of the found memories are returned: scores on one scale, no near-duplicates, then MMR."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, count
from math import isqrt
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
_LEAST_BLOCK: Final = 16
# Texts that share a term are paired one by one up to so many.
_FEW_TEXTS: Final = 8


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
    """The product of each row with each other one; exact for rows of small whole numbers, so in any order."""
    block = max(_LEAST_BLOCK, isqrt(_STEPS_WITHOUT_THREADS // max(1, rows.shape[1])))
    products = np.empty((len(rows), len(rows)), np.float32)
    for top in range(0, len(rows), block):
        for left in range(top, len(rows), block):
            part = rows[top : top + block] @ rows[left : left + block].T
            products[top : top + block, left : left + block] = part
            products[left : left + block, top : top + block] = part.T
    return products


def jaccard_similarities(term_lists: Sequence[Sequence[str]]) -> Floats:
    """The share of their different terms that each two texts have in common; 0 for a few, which say too little."""
    many, sizes = len(term_lists), np.fromiter(map(len, term_lists), np.intp, len(term_lists))
    numbers: defaultdict[str, int] = defaultdict(count().__next__)
    columns = np.fromiter(map(numbers.__getitem__, chain.from_iterable(term_lists)), np.intp, int(sizes.sum()))
    # Numbers of 16 bits are sorted in linear time.
    order = (columns.astype(np.uint16) if len(numbers) < 1 << 16 else columns).argsort(kind="stable")
    columns, texts = columns[order], np.repeat(np.arange(many), sizes)[order]
    spread = np.bincount(columns, minlength=1)
    # Most terms are in one text alone, or in few: only those of many are worth a column of a matrix.
    frequent = spread > _FEW_TEXTS
    incidence = np.zeros((many, int(np.count_nonzero(frequent))), np.float32)
    wide = frequent[columns]
    incidence[texts[wide], (np.cumsum(frequent) - 1)[columns[wide]]] = 1
    columns, texts = columns[~wide], texts[~wide]
    pairs = [
        (texts[:-distance] * many + texts[distance:])[columns[:-distance] == columns[distance:]]
        for distance in range(1, min(_FEW_TEXTS, len(texts)))
    ]
    rare = np.bincount(np.concatenate([np.empty(0, np.intp), *pairs]), minlength=many * many).reshape(many, many)
    both = pairwise_dot(incidence) + (rare + rare.T + np.diag(sizes - incidence.sum(axis=1).astype(np.intp)))
    different = sizes.astype(np.float32)
    shares: Floats = (both / np.maximum(different[:, None] + different - both, 1)).astype(np.float32)
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
