"""How an index of memories is searched: BM25 with neighbours, cosines, fusion, feedback, duplicate threshold, MMR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tenuto.model.memory import MemoryHit, MemoryKind, MemoryQuery, MemoryScores
from tenuto.recall.blocks import Vector
from tenuto.recall.dates import Dated, Period, read_query, text_terms
from tenuto.recall.index import KINDS, FilterView, MemoryIndex
from tenuto.recall.lexical import terms
from tenuto.recall.postings import NEIGHBOUR_SHARE, Floats, Mask, Scores, Visible, make_visible
from tenuto.recall.ranking import (
    FEW_TERMS,
    drop_duplicates,
    jaccard_similarities,
    min_max_normalize,
    pairwise_dot,
    rank_by_mmr,
    session_scores,
    top_k,
)

DUPLICATE_AT: Final = 0.85
"""From which cosine on two memories say the same; measured with the local embedder."""
DUPLICATE_OVERLAP: Final = 0.6
"""The same by words: the share of their terms that both have."""
LEAST_COSINE: Final = 0.15
"""A memory that shares no term with the query is about it from this cosine on; measured with the local embedder."""
LEAST_NEAREST: Final = 0.2
"""The same for the nearest memory of all, where none shares a term."""
LEXICAL_WEIGHT: Final = 0.5
SESSION_WEIGHT: Final = 0.15
FEEDBACK_WEIGHT: Final = 0.3
"""What likeness to the best hits counts: what belongs to them is found though it shares little with the question."""
PERIOD_WEIGHT: Final = 0.3
SPEAKER_WEIGHT: Final = 0.3
TALK_WEIGHT: Final = 0.3
"""What a term of the conversation before counts in a follow-up question."""
MAX_TERMS: Final = 128
"""Terms of one query; of more, the rarest count."""
_POOL: Final = 1_000
"""Memories that the session prior looks at: the best by their own scores."""
_FEEDBACK_BEST: Final = 5
_FEEDBACK_SHARE: Final = 4
"""One of so many candidates at most counts among the best hits: where there are few, most are none."""
_CANDIDATES: Final = 3
"""Candidates of MMR for each hit that is asked for."""
_SCALE: Final = 15
"""Candidates whose range is the scale of relevance for MMR, however many hits are asked for: those of five hits."""
_LIKENESS: Final = 8
"""The power of the similarities that MMR weighs: it keeps nearly the same apart, not what is of one subject."""
_REPEATS: Final = 4
"""How often a memory may be repeated before its repetitions take the place of other candidates."""
_FOLLOW_UP_TERMS: Final = 2
_CHUNK: Final = 512


class _Candidates(NamedTuple):
    """The slots that a query found. `arms` are what words, meaning, period and speaker give, a row each; `fused` is
    their sum."""

    slots: NDArray[np.intp]
    arms: Scores
    fused: Scores
    coverage: Scores
    cosines: Floats

    def at(self, places: NDArray[np.intp]) -> _Candidates:
        slots, arms, fused, coverage, cosines = self
        return _Candidates(slots[places], arms[:, places], fused[places], coverage[places], cosines[places])


def search_index(index: MemoryIndex, query: MemoryQuery, vector: Vector | None, now: datetime) -> tuple[MemoryHit, ...]:
    """The best memories for a query, best first; `vector` is the query's, `None` to search by words alone.

    They depend on the memories alone, not on the order in which they came.

    Raises:
        Invalid: the vector has another length than those of the index.
    """
    dated_query = read_query(query.text, now)
    rows = index.rows
    view = _filter(index, query, rows, now.timestamp())
    mask = _candidate_mask(index, query, rows, dated_query, view)
    weights = _weights(index, query, dated_query)
    # What has neither letter nor digit means nothing, whatever its vector is.
    unit = _unit(index, vector) if any(map(str.isalnum, query.text)) else None
    matches = index.postings.match(weights, view.visible)
    cosines = _cosines(index, unit, rows)
    eligible = _eligible(matches.scores > 0, cosines, mask)
    slots = (mask if dated_query.only else mask & eligible).nonzero()[0]
    if not len(slots):
        return ()
    arms: Scores = np.zeros((4, len(slots)))
    lexical = matches.scores[slots]
    arms[0] = lexical / (lexical.max() or 1)
    if cosines is not None:
        arms[0] *= LEXICAL_WEIGHT
        meaning = min_max_normalize(_with_neighbours(cosines, rows, view.visible), mask)[slots]
        arms[1] = (1 - LEXICAL_WEIGHT) * meaning
    if dated_query.period is not None:
        arms[2] = PERIOD_WEIGHT * _is_inside(rows["said_at"][slots], dated_query.period)
    if speakers := _named_speakers(index, dated_query):
        arms[3] = SPEAKER_WEIGHT * np.isin(rows["speaker"][slots], speakers)
    near = np.zeros(len(slots), np.float32) if cosines is None else cosines[slots]
    candidates = _Candidates(slots, arms, arms.sum(axis=0), matches.coverage[slots], near)
    return _choose(index, query, rows, candidates, weights)


def _eligible(shares_terms: Mask, cosines: Floats | None, mask: Mask) -> Mask:
    """Which memories are about the query: those that share a term with it, or are near enough in meaning.

    Where none shares a term, and the nearest is not near either, the query is about nothing here.
    """
    if cosines is None:
        return shares_terms
    if not (shares_terms & mask).any() and cosines[mask].max(initial=0) < LEAST_NEAREST:
        return shares_terms
    near: Mask = cosines >= LEAST_COSINE
    return shares_terms | near


def _filter(index: MemoryIndex, query: MemoryQuery, rows: NDArray[np.void], moment: float) -> FilterView:
    """What exists for this query; the rest neither appears nor counts as a neighbour.

    Computed again when a memory changes, expires, or ceases to hold, and for other filters.
    """
    own = -1 if query.persona is None else index.personas.get(query.persona, -1)
    filters = (query.superseded, query.any_persona, own, query.kinds)
    view = index.view
    if view is not None and view.filters == filters and view.since <= moment < view.until:
        return view
    ends = [rows["expires_at"]] if query.superseded else [rows["expires_at"], rows["valid_until"]]
    mask: Mask = rows["live"].copy()
    for end in ends:
        mask &= end > moment
    if not query.any_persona:
        mask &= (rows["persona"] == -1) | (rows["persona"] == own)
    visible = make_visible(mask, rows["previous"], rows["following"], rows["length"])
    until = min(float(end[end > moment].min(initial=np.inf)) for end in ends)
    wanted_mask = mask & np.isin(rows["kind"], [KINDS[kind] for kind in query.kinds or MemoryKind])
    index.view = FilterView(filters, moment, until, visible, wanted_mask)
    return index.view


def _candidate_mask(
    index: MemoryIndex, query: MemoryQuery, rows: NDArray[np.void], dated_query: Dated, view: FilterView
) -> Mask:
    """Which memories may be found."""
    mask = view.candidates
    if query.since is not None:
        mask = mask & (rows["said_at"] >= query.since.timestamp())
    if query.until is not None:
        mask = mask & (rows["said_at"] < query.until.timestamp())
    if query.session_id:
        number, _ = index.sessions.get(query.session_id, (-2, []))
        mask = mask & (rows["session"] == number)
    if dated_query.only and dated_query.period is not None:
        mask = mask & _is_inside(rows["said_at"], dated_query.period)
    return mask


def _weights(index: MemoryIndex, query: MemoryQuery, dated_query: Dated) -> dict[str, float]:
    """The terms of the question, each once; in a follow-up those of the conversation before, for less."""
    weights = dict.fromkeys(dated_query.terms, 1.0)
    if len(weights) <= _FOLLOW_UP_TERMS and not dated_query.only:
        for text in reversed(query.talk):
            for term in text_terms(text):
                weights.setdefault(term, TALK_WEIGHT)
    if len(weights) > MAX_TERMS:
        # What no memory holds ranks nothing.
        rarest = sorted(weights, key=lambda term: (-weights[term], index.postings.count(term) or np.inf))[:MAX_TERMS]
        weights = {term: weights[term] for term in rarest}
    return weights


def _named_speakers(index: MemoryIndex, dated_query: Dated) -> list[int]:
    """The speakers whom the question names: an answer about Ann is rather Ann's than the other's."""
    query_terms = set(dated_query.terms)
    return [
        number for speaker, number in index.speakers.items() if speaker and not query_terms.isdisjoint(terms(speaker))
    ]


def _cosines(index: MemoryIndex, unit: Floats | None, rows: NDArray[np.void]) -> Floats | None:
    if unit is None or index.vectors is None:
        return None
    cosines = _products(index.vectors, unit)
    cosines *= rows["scale"]
    return cosines


def _with_neighbours(cosines: Floats, rows: NDArray[np.void], visible: Visible) -> Floats:
    """The cosines of the vectors with a share of their neighbours', without a copy of any vector."""
    around = cosines
    if len(visible.targets) > 1:
        with_zero = np.append(cosines, np.float32(0))
        around = cosines + NEIGHBOUR_SHARE * (with_zero[visible.targets[1]] + with_zero[visible.targets[2]])
    return np.where(rows["embedded"], around / rows["norm"], np.float32(0))


def _choose(
    index: MemoryIndex,
    query: MemoryQuery,
    rows: NDArray[np.void],
    candidates: _Candidates,
    weights: Mapping[str, float],
) -> tuple[MemoryHit, ...]:
    if len(candidates.slots) > _POOL:
        candidates = candidates.at(top_k(candidates.fused.round(6), rows["said_at"][candidates.slots], _POOL))
    prior = session_scores(candidates.fused, rows["session"][candidates.slots])
    prior *= SESSION_WEIGHT
    if candidates.arms[1].any():
        candidates.arms[1] += _feedback(index, candidates.slots, (candidates.fused + prior).round(6), rows)
        candidates = candidates._replace(fused=candidates.arms.sum(axis=0))
    totals = (candidates.fused + prior).round(6)
    order, similarities = _distinct(index, candidates.slots, totals, rows, _CANDIDATES * query.limit)
    best = totals[order]
    # By the range of so many: of the range of a long list two hits differ less, and MMR would decide alone.
    least = best[min(len(best), _SCALE) - 1]
    relevances = (best - least) / (best[0] - least or 1)
    best_ranks = rank_by_mmr(relevances, similarities**_LIKENESS, query.limit, query.mmr_lambda)
    places = order[best_ranks]
    alike = similarities[best_ranks][:, best_ranks].tolist()
    nearest = [max(above[:rank], default=0.0) for rank, above in enumerate(alike)]
    return _hits(index, candidates.at(places), prior[places], nearest, weights)


def _feedback(index: MemoryIndex, slots: NDArray[np.intp], totals: Scores, rows: NDArray[np.void]) -> Scores:
    """How near each candidate is in meaning to the best ones together, which keep their order."""
    count = min(_FEEDBACK_BEST, len(slots) // _FEEDBACK_SHARE)
    embedded = rows["embedded"][slots]
    if not count or index.vectors is None:
        return np.zeros(len(slots))
    best = _order(index, slots, totals, rows["said_at"][slots], count)
    shares = totals[best].astype(np.float32) * rows["scale"][slots[best]]
    centre = _unit(index, shares @ index.vectors[slots[best]].astype(np.float32))
    if centre is None:
        return np.zeros(len(slots))
    nearness = min_max_normalize(_products(index.vectors[slots], centre) * rows["scale"][slots], embedded)
    nearness[best] = 1
    return FEEDBACK_WEIGHT * nearness.astype(np.float64)


def _hits(
    index: MemoryIndex, candidates: _Candidates, prior: Scores, nearest: Sequence[float], weights: Mapping[str, float]
) -> tuple[MemoryHit, ...]:
    near = np.maximum(candidates.cosines, 0)
    parts = np.vstack((candidates.arms, prior, near, candidates.coverage, nearest)).round(4).T
    hits: list[MemoryHit] = []
    for slot, each in zip(candidates.slots.tolist(), parts.tolist(), strict=True):
        lexical, vector, period, speaker, session, cosine, coverage, similarity = each
        shared = weights.keys() & index.terms_of(slot)
        scores = MemoryScores(
            lexical=lexical,
            vector=vector,
            session=session,
            period=period,
            speaker=speaker,
            cosine=cosine,
            coverage=coverage,
            similarity=similarity,
            terms=tuple([term for term in weights if term in shared]),
        )
        total = round(lexical + vector + session + period + speaker, 4)
        hits.append(MemoryHit(memory=index.memory(slot), score=total, scores=scores))
    return tuple(hits)


def _distinct(
    index: MemoryIndex, slots: NDArray[np.intp], totals: Scores, rows: NDArray[np.void], limit: int
) -> tuple[NDArray[np.intp], Floats]:
    """The places of the best that repeat no better one, and how alike they are; looks at more only as needed."""
    width, most = limit + limit // 5, min(_REPEATS * limit, len(slots))
    order = _order(index, slots, totals, rows["said_at"][slots], most)
    chosen = order[:0]
    for start in range(0, most, width):
        # Those that repeat a better one need not be compared with again.
        places = np.concatenate((chosen, order[start : start + width]))
        similarities = _similarities(index, slots[places], rows)
        distinct = drop_duplicates(similarities, DUPLICATE_AT)[:limit]
        chosen = places[distinct]
        if len(chosen) == limit or start + width >= most:
            return chosen, similarities[distinct][:, distinct]
    raise AssertionError


def _order(index: MemoryIndex, slots: NDArray[np.intp], totals: Scores, times: Scores, limit: int) -> NDArray[np.intp]:
    """The best places by score, then the newest, then by id: the order does not depend on the slots."""
    order = np.lexsort((times, totals))[::-1]
    first = order[: limit + 1]
    if len(set(zip(totals[first].tolist(), times[first].tolist(), strict=True))) == len(first):
        return order[:limit]
    ids = [index.memory(slot).id for slot in slots.tolist()]
    by_id = sorted(zip((-totals).tolist(), (-times).tolist(), ids, range(len(ids)), strict=True))
    return np.array([place for *_, place in by_id[:limit]])


def _similarities(index: MemoryIndex, candidates: NDArray[np.intp], rows: NDArray[np.void]) -> Floats:
    """How alike the candidates are: by their terms, stretched to the scale of cosines, and by their vectors."""
    slots = candidates.tolist()
    # The terms of the text come first, before those of speaker and date.
    term_lists = [
        index.terms_of(slot)[:size] for slot, size in zip(slots, rows["said"][candidates].tolist(), strict=True)
    ]
    alike: Floats = np.minimum(
        jaccard_similarities(term_lists) * np.float32(DUPLICATE_AT / DUPLICATE_OVERLAP), np.float32(1)
    )
    if index.vectors is not None:
        scale = rows["scale"][candidates]
        products = pairwise_dot(index.vectors[candidates].astype(np.float32))
        alike = np.maximum(alike, products * scale[:, None] * scale)
    # Texts of few terms are not compared by them, but equal ones say the same.
    texts: dict[str, list[int]] = {}
    for place, slot in enumerate(slots):
        if len(term_lists[place]) < FEW_TERMS:
            same = texts.setdefault(index.memory(slot).text.casefold(), [])
            alike[place, same] = alike[same, place] = 1
            same.append(place)
    return alike


def _unit(index: MemoryIndex, vector: Vector | None) -> Floats | None:
    if vector is None:
        return None
    index.check_length(vector)
    unit = np.asarray(vector, np.float32)
    length = float(np.linalg.norm(unit))
    return unit / np.float32(length) if 0 < length < np.inf else None


def _products(vectors: NDArray[np.int8], unit: Floats) -> Floats:
    """The product of each vector with one, in parts: whole, they would be copied as floats."""
    products = np.zeros(len(vectors), np.float32)
    for start in range(0, len(vectors), _CHUNK):
        products[start : start + _CHUNK] = vectors[start : start + _CHUNK].astype(np.float32) @ unit
    return products


def _is_inside(said_at: NDArray[np.float64], period: Period) -> Mask:
    inside: Mask = (said_at >= period.start.timestamp()) & (said_at < period.end.timestamp())
    return inside
