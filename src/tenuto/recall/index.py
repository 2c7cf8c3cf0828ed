"""The index over the memories of one owner: BM25 with neighbours, exact vectors, fusion, duplicate threshold, MMR.

It lives in one process and holds nothing that the store does not: the ranking is the same over every backend, also
over encrypted stores. numpy is loaded with this module, which only a search or a capture needs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import count
from math import inf, sqrt
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tenuto.errors import Invalid
from tenuto.model.memory import Memory, MemoryHit, MemoryKind, MemoryQuery, MemoryScores
from tenuto.recall.blocks import MAX_COUNT, BlockWriter, IndexBlock, Vector, memory_terms, quantize
from tenuto.recall.dates import Dated, Period, read_query, text_terms
from tenuto.recall.lexical import terms
from tenuto.recall.postings import COUNT_BITS, NEIGHBOUR_SHARE, Floats, Mask, Postings, Scores, Visible, make_visible
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

Steps: TypeAlias = NDArray[np.int8]

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
# What a memory takes in lists and tables of Python objects, beside its terms.
_SLOT_BYTES: Final = 250

_KINDS: Final = {kind: number for number, kind in enumerate(MemoryKind)}
_ROW: Final = np.dtype(
    [
        ("said_at", "f8"),
        ("expires_at", "f8"),
        ("valid_until", "f8"),
        ("previous", "i4"),
        ("following", "i4"),
        ("session", "i4"),
        ("persona", "i4"),
        ("speaker", "i4"),
        ("said", "i4"),
        ("length", "f4"),
        ("scale", "f4"),
        ("norm", "f4"),
        ("kind", "i1"),
        ("live", "?"),
        ("embedded", "?"),
    ]
)


class _FilterView(NamedTuple):
    """What queries with these filters see, and which of it they want, from a moment until before another."""

    filters: tuple[object, ...]
    since: float
    until: float
    visible: Visible
    candidates: Mask


class _FilledTerms(NamedTuple):
    """The terms of the memories that an index was filled with: numbers in `names`, those of a slot up to its end."""

    names: list[str]
    numbers: NDArray[np.uint32]
    counts: bytes
    ends: NDArray[np.int64]


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


_Place: TypeAlias = tuple[tuple[int, ...], datetime, str, int]


class MemoryIndex:
    """Searches the memories of one owner in this process; the caller stores them.

    Not safe for several threads at once. The hits depend on the memories alone, not on the order they came in.
    """

    def __init__(self, memories: Iterable[Memory] = (), vectors: Mapping[str, Vector] | None = None) -> None:
        self._slots: dict[str, int] = {}
        self._memories: list[Memory | None] = []
        # The different terms of each memory, `None` as it was filled in, and how often each occurs.
        self._terms: list[tuple[str, ...] | None] = []
        self._counts: list[bytes] = []
        self._filled = _FilledTerms([], np.empty(0, np.uint32), b"", np.zeros(1, np.int64))
        self._term_count = 0
        self._free: list[int] = []
        self._rows: NDArray[np.void] = np.zeros(16, _ROW)
        # A byte for each number, times `scale`: a quarter of the memory, for a tenth more time and the same ranking.
        self._vectors: NDArray[np.int8] | None = None
        self._postings = Postings()
        self._sessions: dict[str, tuple[int, list[_Place]]] = {}
        self._session_count = 0
        self._personas: dict[str, int] = {}
        self._speakers: dict[str, int] = {}
        self._view: _FilterView | None = None
        for memory in memories:
            self.put(memory, (vectors or {}).get(memory.id))

    def __len__(self) -> int:
        return len(self._slots)

    def nbytes(self) -> int:
        """Bytes of the index, about, without the memories themselves."""
        vectors = 0 if self._vectors is None else self._vectors.nbytes
        view = 0 if self._view is None else self._view.visible.nbytes()
        own = _SLOT_BYTES * len(self._memories) + 9 * self._term_count
        return self._rows.nbytes + vectors + view + self._postings.nbytes() + own

    @classmethod
    def of_blocks(cls, blocks: Sequence[IndexBlock]) -> MemoryIndex:
        """An index of blocks that hold each memory once, and vectors of one length."""
        index = cls()
        index._load(blocks)
        return index

    def block(self, memory_ids: Iterable[str]) -> IndexBlock:
        """Some of the memories as a block."""
        writer = BlockWriter()
        for memory_id in memory_ids:
            slot = self._slots[memory_id]
            row = self._rows[slot]
            vector = self._vectors[slot] if self._vectors is not None and row["embedded"] else None
            memory = self._memory(slot)
            writer.add(
                memory, self._terms_of(slot), self._counts_of(slot), int(row["said"]), float(row["length"]), vector
            )
        return writer.finish()

    def same_terms(self, text: str) -> list[Memory]:
        """The memories whose texts have the same different terms as this one."""
        unique = set(text_terms(text))
        slots = self._postings.slots(min(unique, key=self._postings.count)) if unique else ()
        alike = [slot for slot in slots if set(self._terms_of(slot)[: int(self._rows["said"][slot])]) == unique]
        return [self._memory(slot) for slot in alike]

    def put(self, memory: Memory, vector: Vector | None = None) -> None:
        """Add a memory, or replace the one of the same id. Without a vector, that of the same text is kept.

        Raises:
            Invalid: the vector has another length than those here; vectors of two embedders cannot be compared.
        """
        steps = self._steps(vector)
        if (old := self._slots.get(memory.id)) is not None:
            same_text = self._memory(old).text == memory.text
            if steps is None and same_text and self._vectors is not None and self._rows["embedded"][old]:
                steps = self._vectors[old].copy()
            self.remove(memory.id)
        slot = self._new_slot()
        self._view = None
        self._slots[memory.id] = slot
        self._memories[slot] = memory
        found = memory_terms(memory)
        self._terms[slot] = self._postings.add(slot, found.counts)
        self._counts[slot] = bytes([min(count, MAX_COUNT) for count in found.counts.values()])
        self._term_count += len(found.counts)
        self._rows[slot] = (
            memory.said_at.timestamp(),
            _expires_at(memory),
            _valid_until(memory),
            -1,
            -1,
            -1,
            -1 if memory.persona is None else self._personas.setdefault(memory.persona, len(self._personas)),
            self._speakers.setdefault(memory.speaker, len(self._speakers)),
            found.said,
            found.counts.total(),
            0,
            1,
            _KINDS[memory.kind],
            True,
            steps is not None,
        )
        if steps is not None:
            self._hold_vector(slot, steps)
        if memory.session_id:
            self._link(slot, memory)

    def remove(self, memory_id: str) -> None:
        """Remove a memory, if it is there."""
        slot = self._slots.pop(memory_id, None)
        if slot is None:
            return
        self._view = None
        memory = self._memory(slot)
        its_terms = self._terms_of(slot)
        self._postings.discard(slot, its_terms)
        if memory.session_id:
            self._unlink(slot, memory)
        self._memories[slot] = None
        self._term_count -= len(its_terms)
        self._terms[slot], self._counts[slot] = (), b""
        self._rows[slot] = np.zeros((), _ROW)
        self._rows["norm"][slot] = 1
        if self._vectors is not None:
            self._vectors[slot] = 0
        self._free.append(slot)

    def vector(self, memory_id: str) -> Steps | None:
        """The vector of a memory as it is kept here, `None` without one."""
        slot = self._slots.get(memory_id)
        if slot is None or not self._rows["embedded"][slot]:
            return None
        return None if self._vectors is None else self._vectors[slot].copy()

    def _load(self, blocks: Sequence[IndexBlock]) -> None:
        memories = [memory for block in blocks for memory in block.memories]
        size = len(memories)
        self._memories = list[Memory | None](memories)
        self._slots = {memory.id: slot for slot, memory in enumerate(memories)}
        rows = self._rows = np.zeros(size + size // 16 + 16, _ROW)
        columns: dict[str, Iterable[float]] = {
            "said_at": [memory.said_at.timestamp() for memory in memories],
            "expires_at": map(_expires_at, memories),
            "valid_until": map(_valid_until, memories),
            "persona": (
                -1 if one.persona is None else self._personas.setdefault(one.persona, len(self._personas))
                for one in memories
            ),
            "speaker": (self._speakers.setdefault(one.speaker, len(self._speakers)) for one in memories),
            "kind": [_KINDS[memory.kind] for memory in memories],
        }
        for name, values in columns.items():
            rows[name][:size] = np.fromiter(values, rows[name].dtype, size)
        for name in ("previous", "following", "session"):
            rows[name][:size] = -1
        rows["norm"], rows["live"][:size] = 1, True
        rows["said"][:size] = np.frombuffer(b"".join([block.said for block in blocks]), np.int32)
        rows["length"][:size] = np.frombuffer(b"".join([block.lengths for block in blocks]), np.float32)
        rows["embedded"][:size] = np.frombuffer(b"".join([block.embedded for block in blocks]), np.bool_)
        self._load_terms(blocks)
        dimension = max((block.dimension for block in blocks), default=0)
        if dimension:
            self._vectors = np.zeros((len(rows), dimension), np.int8)
            start = 0
            for block in blocks:
                steps = np.frombuffer(block.vectors, np.int8).reshape(-1, dimension)
                slots = start + np.flatnonzero(np.frombuffer(block.embedded, np.bool_))
                self._vectors[slots] = steps
                numbers = steps.astype(np.float32)
                rows["scale"][slots] = 1 / np.sqrt(np.einsum("ij,ij->i", numbers, numbers).astype(np.float64))
                start += len(block.memories)
        self._link_all()

    def _load_terms(self, blocks: Sequence[IndexBlock]) -> None:
        vocabulary: defaultdict[str, int] = defaultdict(count().__next__)
        numbers: list[NDArray[np.uint32]] = [np.empty(0, np.uint32)]
        for block in blocks:
            own = np.fromiter(map(vocabulary.__getitem__, block.vocabulary.split()), np.uint32)
            numbers.append(own[np.frombuffer(block.terms, np.uint32)])
        places, names = np.concatenate(numbers), list(vocabulary)
        counts = b"".join([block.counts for block in blocks])
        sizes = np.frombuffer(b"".join([block.sizes for block in blocks]), np.uint32)
        slots = np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)
        entries = (slots << COUNT_BITS | np.frombuffer(counts, np.uint8)).astype(np.uint32)
        self._postings.fill(names, places, entries)
        self._filled = _FilledTerms(names, places, counts, np.append(0, np.cumsum(sizes, dtype=np.int64)))
        self._terms, self._counts = [None] * len(sizes), [b""] * len(sizes)
        self._term_count = len(places)

    def _terms_of(self, slot: int) -> tuple[str, ...]:
        """The different terms of a memory, those of its text first."""
        its_terms = self._terms[slot]
        if its_terms is None:
            names, numbers, _, ends = self._filled
            return tuple([names[number] for number in numbers[ends[slot] : ends[slot + 1]].tolist()])
        return its_terms

    def _counts_of(self, slot: int) -> bytes:
        """How often each of them occurs."""
        if self._terms[slot] is None:
            _, _, counts, ends = self._filled
            return counts[ends[slot] : ends[slot + 1]]
        return self._counts[slot]

    def search(self, query: MemoryQuery, vector: Vector | None, now: datetime) -> tuple[MemoryHit, ...]:
        """The best memories for a query, best first; `vector` is the query's, `None` to search by words alone."""
        dated_query = read_query(query.text, now)
        rows = self._rows[: len(self._memories)]
        view = self._filter(query, rows, now.timestamp())
        mask = self._candidate_mask(query, rows, dated_query, view)
        weights = self._weights(query, dated_query)
        # What has neither letter nor digit means nothing, whatever its vector is.
        unit = self._unit(vector) if any(map(str.isalnum, query.text)) else None
        matches = self._postings.match(weights, view.visible)
        cosines = self._cosines(unit, rows)
        eligible = self._eligible(matches.scores > 0, cosines, mask)
        slots = (mask if dated_query.only else mask & eligible).nonzero()[0]
        if not len(slots):
            return ()
        arms: Scores = np.zeros((4, len(slots)))
        lexical = matches.scores[slots]
        arms[0] = lexical / (lexical.max() or 1)
        if cosines is not None:
            arms[0] *= LEXICAL_WEIGHT
            meaning = min_max_normalize(self._with_neighbours(cosines, rows, view.visible), mask)[slots]
            arms[1] = (1 - LEXICAL_WEIGHT) * meaning
        if dated_query.period is not None:
            arms[2] = PERIOD_WEIGHT * _is_inside(rows["said_at"][slots], dated_query.period)
        if speakers := self._named_speakers(dated_query):
            arms[3] = SPEAKER_WEIGHT * np.isin(rows["speaker"][slots], speakers)
        near = np.zeros(len(slots), np.float32) if cosines is None else cosines[slots]
        candidates = _Candidates(slots, arms, arms.sum(axis=0), matches.coverage[slots], near)
        return self._choose(query, rows, candidates, weights)

    def _eligible(self, shares_terms: Mask, cosines: Floats | None, mask: Mask) -> Mask:
        """Which memories are about the query: those that share a term with it, or are near enough in meaning.

        Where none shares a term, and the nearest is not near either, the query is about nothing here.
        """
        if cosines is None:
            return shares_terms
        if not (shares_terms & mask).any() and cosines[mask].max(initial=0) < LEAST_NEAREST:
            return shares_terms
        near: Mask = cosines >= LEAST_COSINE
        return shares_terms | near

    def _filter(self, query: MemoryQuery, rows: NDArray[np.void], moment: float) -> _FilterView:
        """What exists for this query; the rest neither appears nor counts as a neighbour.

        Computed again when a memory changes, expires, or ceases to hold, and for other filters.
        """
        own = -1 if query.persona is None else self._personas.get(query.persona, -1)
        filters = (query.superseded, query.any_persona, own, query.kinds)
        view = self._view
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
        wanted_mask = mask & np.isin(rows["kind"], [_KINDS[kind] for kind in query.kinds or MemoryKind])
        self._view = _FilterView(filters, moment, until, visible, wanted_mask)
        return self._view

    def _candidate_mask(
        self, query: MemoryQuery, rows: NDArray[np.void], dated_query: Dated, view: _FilterView
    ) -> Mask:
        """Which memories may be found."""
        mask = view.candidates
        if query.since is not None:
            mask = mask & (rows["said_at"] >= query.since.timestamp())
        if query.until is not None:
            mask = mask & (rows["said_at"] < query.until.timestamp())
        if query.session_id:
            number, _ = self._sessions.get(query.session_id, (-2, []))
            mask = mask & (rows["session"] == number)
        if dated_query.only and dated_query.period is not None:
            mask = mask & _is_inside(rows["said_at"], dated_query.period)
        return mask

    def _weights(self, query: MemoryQuery, dated_query: Dated) -> dict[str, float]:
        """The terms of the question, each once; in a follow-up those of the conversation before, for less."""
        weights = dict.fromkeys(dated_query.terms, 1.0)
        if len(weights) <= _FOLLOW_UP_TERMS and not dated_query.only:
            for text in reversed(query.talk):
                for term in text_terms(text):
                    weights.setdefault(term, TALK_WEIGHT)
        if len(weights) > MAX_TERMS:
            # What no memory holds ranks nothing.
            rarest = sorted(weights, key=lambda term: (-weights[term], self._postings.count(term) or np.inf))[
                :MAX_TERMS
            ]
            weights = {term: weights[term] for term in rarest}
        return weights

    def _named_speakers(self, dated_query: Dated) -> list[int]:
        """The speakers whom the question names: an answer about Ann is rather Ann's than the other's."""
        query_terms = set(dated_query.terms)
        return [
            number
            for speaker, number in self._speakers.items()
            if speaker and not query_terms.isdisjoint(terms(speaker))
        ]

    def _cosines(self, unit: Floats | None, rows: NDArray[np.void]) -> Floats | None:
        if unit is None or self._vectors is None:
            return None
        cosines = _products(self._vectors[: len(rows)], unit)
        cosines *= rows["scale"]
        return cosines

    def _with_neighbours(self, cosines: Floats, rows: NDArray[np.void], visible: Visible) -> Floats:
        """The cosines of the vectors with a share of their neighbours', without a copy of any vector."""
        around = cosines
        if len(visible.targets) > 1:
            with_zero = np.append(cosines, np.float32(0))
            around = cosines + NEIGHBOUR_SHARE * (with_zero[visible.targets[1]] + with_zero[visible.targets[2]])
        return np.where(rows["embedded"], around / rows["norm"], np.float32(0))

    def _choose(
        self, query: MemoryQuery, rows: NDArray[np.void], candidates: _Candidates, weights: Mapping[str, float]
    ) -> tuple[MemoryHit, ...]:
        if len(candidates.slots) > _POOL:
            candidates = candidates.at(top_k(candidates.fused.round(6), rows["said_at"][candidates.slots], _POOL))
        prior = session_scores(candidates.fused, rows["session"][candidates.slots])
        prior *= SESSION_WEIGHT
        if candidates.arms[1].any():
            candidates.arms[1] += self._feedback(candidates.slots, (candidates.fused + prior).round(6), rows)
            candidates = candidates._replace(fused=candidates.arms.sum(axis=0))
        totals = (candidates.fused + prior).round(6)
        order, similarities = self._distinct(candidates.slots, totals, rows, _CANDIDATES * query.limit)
        best = totals[order]
        # By the range of so many: of the range of a long list two hits differ less, and MMR would decide alone.
        least = best[min(len(best), _SCALE) - 1]
        relevances = (best - least) / (best[0] - least or 1)
        best_ranks = rank_by_mmr(relevances, similarities**_LIKENESS, query.limit, query.mmr_lambda)
        places = order[best_ranks]
        alike = similarities[best_ranks][:, best_ranks].tolist()
        nearest = [max(above[:rank], default=0.0) for rank, above in enumerate(alike)]
        return self._hits(candidates.at(places), prior[places], nearest, weights)

    def _feedback(self, slots: NDArray[np.intp], totals: Scores, rows: NDArray[np.void]) -> Scores:
        """How near each candidate is in meaning to the best ones together, which keep their order."""
        count = min(_FEEDBACK_BEST, len(slots) // _FEEDBACK_SHARE)
        embedded = rows["embedded"][slots]
        if not count or self._vectors is None:
            return np.zeros(len(slots))
        best = self._order(slots, totals, rows["said_at"][slots], count)
        shares = totals[best].astype(np.float32) * rows["scale"][slots[best]]
        centre = self._unit(shares @ self._vectors[slots[best]].astype(np.float32))
        if centre is None:
            return np.zeros(len(slots))
        nearness = min_max_normalize(_products(self._vectors[slots], centre) * rows["scale"][slots], embedded)
        nearness[best] = 1
        return FEEDBACK_WEIGHT * nearness.astype(np.float64)

    def _hits(
        self, candidates: _Candidates, prior: Scores, nearest: Sequence[float], weights: Mapping[str, float]
    ) -> tuple[MemoryHit, ...]:
        near = np.maximum(candidates.cosines, 0)
        parts = np.vstack((candidates.arms, prior, near, candidates.coverage, nearest)).round(4).T
        hits: list[MemoryHit] = []
        for slot, each in zip(candidates.slots.tolist(), parts.tolist(), strict=True):
            lexical, vector, period, speaker, session, cosine, coverage, similarity = each
            shared = weights.keys() & self._terms_of(slot)
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
            hits.append(MemoryHit(memory=self._memory(slot), score=total, scores=scores))
        return tuple(hits)

    def _distinct(
        self, slots: NDArray[np.intp], totals: Scores, rows: NDArray[np.void], limit: int
    ) -> tuple[NDArray[np.intp], Floats]:
        """The places of the best that repeat no better one, and how alike they are; looks at more only as needed."""
        width, most = limit + limit // 5, min(_REPEATS * limit, len(slots))
        order = self._order(slots, totals, rows["said_at"][slots], most)
        chosen = order[:0]
        for start in range(0, most, width):
            # Those that repeat a better one need not be compared with again.
            places = np.concatenate((chosen, order[start : start + width]))
            similarities = self._similarities(slots[places], rows)
            distinct = drop_duplicates(similarities, DUPLICATE_AT)[:limit]
            chosen = places[distinct]
            if len(chosen) == limit or start + width >= most:
                return chosen, similarities[distinct][:, distinct]
        raise AssertionError

    def _order(self, slots: NDArray[np.intp], totals: Scores, times: Scores, limit: int) -> NDArray[np.intp]:
        """The best places by score, then the newest, then by id: the order does not depend on the slots."""
        order = np.lexsort((times, totals))[::-1]
        first = order[: limit + 1]
        if len(set(zip(totals[first].tolist(), times[first].tolist(), strict=True))) == len(first):
            return order[:limit]
        ids = [self._memory(slot).id for slot in slots.tolist()]
        by_id = sorted(zip((-totals).tolist(), (-times).tolist(), ids, range(len(ids)), strict=True))
        return np.array([place for *_, place in by_id[:limit]])

    def _memory(self, slot: int) -> Memory:
        memory = self._memories[slot]
        assert memory is not None
        return memory

    def _similarities(self, candidates: NDArray[np.intp], rows: NDArray[np.void]) -> Floats:
        """How alike the candidates are: by their terms, stretched to the scale of cosines, and by their vectors."""
        slots = candidates.tolist()
        # The terms of the text come first, before those of speaker and date.
        term_lists = [
            self._terms_of(slot)[:size] for slot, size in zip(slots, rows["said"][candidates].tolist(), strict=True)
        ]
        alike: Floats = np.minimum(
            jaccard_similarities(term_lists) * np.float32(DUPLICATE_AT / DUPLICATE_OVERLAP), np.float32(1)
        )
        if self._vectors is not None:
            scale = rows["scale"][candidates]
            products = pairwise_dot(self._vectors[candidates].astype(np.float32))
            alike = np.maximum(alike, products * scale[:, None] * scale)
        # Texts of few terms are not compared by them, but equal ones say the same.
        texts: dict[str, list[int]] = {}
        for place, slot in enumerate(slots):
            if len(term_lists[place]) < FEW_TERMS:
                same = texts.setdefault(self._memory(slot).text.casefold(), [])
                alike[place, same] = alike[same, place] = 1
                same.append(place)
        return alike

    def _hold_vector(self, slot: int, steps: Steps) -> None:
        if self._vectors is None:
            self._vectors = np.zeros((len(self._rows), len(steps)), np.int8)
        self._vectors[slot] = steps
        # By the length of what is kept: the cosine of a vector with itself is 1.
        numbers = steps.astype(np.float32)
        self._rows["scale"][slot] = 1 / sqrt(numbers @ numbers)

    def _unit(self, vector: Vector | None) -> Floats | None:
        if vector is None:
            return None
        self._check_length(vector)
        unit = np.asarray(vector, np.float32)
        length = float(np.linalg.norm(unit))
        return unit / np.float32(length) if 0 < length < np.inf else None

    def _steps(self, vector: Vector | None) -> Steps | None:
        if vector is None:
            return None
        self._check_length(vector)
        return quantize(vector)

    def _check_length(self, vector: Vector) -> None:
        if np.ndim(vector) != 1 or (self._vectors is not None and len(vector) != self._vectors.shape[1]):
            raise Invalid("a vector has another length than those of the index")

    def _new_slot(self) -> int:
        if self._free:
            return self._free.pop()
        slot = len(self._memories)
        if slot == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros(slot // 2, _ROW)])
            if self._vectors is not None:
                more = np.zeros((slot // 2, self._vectors.shape[1]), np.int8)
                self._vectors = np.concatenate([self._vectors, more])
        self._memories.append(None)
        self._terms.append(())
        self._counts.append(b"")
        return slot

    def _link(self, slot: int, memory: Memory) -> None:
        if memory.session_id not in self._sessions:
            self._sessions[memory.session_id] = (self._session_count, [])
            self._session_count += 1
        number, places = self._sessions[memory.session_id]
        entry = _place(slot, memory)
        insort(places, entry)
        at = bisect_left(places, entry)
        self._rows["session"][slot] = number
        before = places[at - 1][-1] if at else -1
        after = places[at + 1][-1] if at + 1 < len(places) else -1
        self._join(before, slot)
        self._join(slot, after)
        self._measure([before, slot, after])

    def _unlink(self, slot: int, memory: Memory) -> None:
        _, places = self._sessions[memory.session_id]
        del places[bisect_left(places, _place(slot, memory))]
        before, after = int(self._rows["previous"][slot]), int(self._rows["following"][slot])
        self._join(before, after)
        self._measure([before, after])
        if not places:
            del self._sessions[memory.session_id]

    def _link_all(self) -> None:
        """As `_link` for all memories, of which none is linked yet."""
        for slot, memory in enumerate(self._memories):
            if memory is not None and memory.session_id:
                self._sessions.setdefault(memory.session_id, (len(self._sessions), []))[1].append(_place(slot, memory))
        self._session_count = len(self._sessions)
        for number, places in self._sessions.values():
            places.sort()
            slots = [place[-1] for place in places]
            self._rows["session"][slots] = number
            self._rows["following"][slots[:-1]] = slots[1:]
            self._rows["previous"][slots[1:]] = slots[:-1]
        for start in range(0, len(self._memories), _CHUNK):
            self._measure(range(start, min(start + _CHUNK, len(self._memories))))

    def _join(self, before: int, after: int) -> None:
        if before >= 0:
            self._rows["following"][before] = after
        if after >= 0:
            self._rows["previous"][after] = before

    def _measure(self, slots: Iterable[int]) -> None:
        """Note how long vectors are with the share of their neighbours."""
        embedded = [slot for slot in slots if slot >= 0 and self._rows["embedded"][slot]]
        if self._vectors is None or not embedded:
            return
        rows = self._rows[embedded]
        own = self._vectors[embedded].astype(np.float32)
        sides = []
        for side in ("previous", "following"):
            beside = rows[side]
            vectors = self._vectors[beside].astype(np.float32)
            sides.append((vectors, np.where(beside >= 0, self._rows["scale"][beside], 0).astype(np.float64)))
        (previous, before), (following, after) = sides
        scale = rows["scale"].astype(np.float64)
        # Products of whole numbers are exact, in whatever order: the same for one memory and for all at once.
        squares = 1 + NEIGHBOUR_SHARE**2 * ((before > 0) * 1.0 + (after > 0) * 1.0)
        squares += 2 * NEIGHBOUR_SHARE * scale * before * np.einsum("ij,ij->i", own, previous)
        squares += 2 * NEIGHBOUR_SHARE * scale * after * np.einsum("ij,ij->i", own, following)
        squares += 2 * NEIGHBOUR_SHARE**2 * before * after * np.einsum("ij,ij->i", previous, following)
        self._rows["norm"][embedded] = np.sqrt(np.maximum(squares, 1e-12))


def _products(vectors: NDArray[np.int8], unit: Floats) -> Floats:
    """The product of each vector with one, in parts: whole, they would be copied as floats."""
    products = np.zeros(len(vectors), np.float32)
    for start in range(0, len(vectors), _CHUNK):
        products[start : start + _CHUNK] = vectors[start : start + _CHUNK].astype(np.float32) @ unit
    return products


def _place(slot: int, memory: Memory) -> _Place:
    return (memory.seqs, memory.said_at, memory.id, slot)


def _expires_at(memory: Memory) -> float:
    return memory.expires_at.timestamp() if memory.expires_at else inf


def _valid_until(memory: Memory) -> float:
    if memory.superseded_by:
        return -inf
    return memory.valid_until.timestamp() if memory.valid_until else inf


def _is_inside(said_at: NDArray[np.float64], period: Period) -> Mask:
    inside: Mask = (said_at >= period.start.timestamp()) & (said_at < period.end.timestamp())
    return inside
