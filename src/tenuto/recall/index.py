"""The index over the memories of one owner: BM25 with neighbours, exact vectors, fusion, duplicate threshold, MMR.

It lives in one process and holds nothing that the store does not: the ranking is the same over every backend, also
over encrypted stores. numpy is loaded with this module, which only a search or a capture needs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain
from math import sqrt
from sys import getsizeof
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tenuto.errors import Invalid
from tenuto.model.memory import Memory, MemoryHit, MemoryKind, MemoryQuery, MemoryScores
from tenuto.recall.dates import Dated, date_terms, read_query, text_terms
from tenuto.recall.lexical import terms
from tenuto.recall.postings import NEIGHBOUR_SHARE, Floats, Mask, Matches, Postings, find_neighbours
from tenuto.recall.ranking import drop_duplicates, multiply_pairs, rank_by_mmr, scale_to_one, session_scores

Vector: TypeAlias = Sequence[float] | NDArray[np.float32]

DUPLICATE_AT: Final = 0.85
"""From which cosine on two memories say the same; measured with the local embedder."""
DUPLICATE_OVERLAP: Final = 0.6
"""The same by words: the share of their terms that both have."""
LEXICAL_WEIGHT: Final = 0.5
SESSION_WEIGHT: Final = 0.3
PERIOD_WEIGHT: Final = 0.3
SPEAKER_WEIGHT: Final = 0.3
TALK_WEIGHT: Final = 0.3
"""What a term of the conversation before counts in a follow-up question."""
MAX_TERMS: Final = 128
"""Terms of one query; of more, the rarest count."""
_POOL: Final = 1_000
"""Memories that the session prior looks at: the best by their own scores."""
_CANDIDATES: Final = 3
"""Candidates of MMR for each hit that is asked for."""
_REPEATS: Final = 4
"""How often a memory may be repeated before its repetitions take the place of other candidates."""
_FOLLOW_UP_TERMS: Final = 2
_FEW_TERMS: Final = 3
_CHUNK: Final = 512

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
_Place: TypeAlias = tuple[tuple[int, ...], datetime, str, int]


class MemoryIndex:
    """Searches the memories of one owner in this process; the caller stores them.

    Not safe for several threads at once. The hits depend on the memories alone, not on the order they came in.
    """

    def __init__(self, memories: Iterable[Memory] = (), vectors: Mapping[str, Vector] | None = None) -> None:
        self._slots: dict[str, int] = {}
        self._memories: list[Memory | None] = []
        self._terms: list[tuple[str, ...]] = []
        self._free: list[int] = []
        self._rows: NDArray[np.void] = np.zeros(16, _ROW)
        # A byte for each number, times `scale`: a quarter of the memory, for a tenth more time and the same ranking.
        self._vectors: NDArray[np.int8] | None = None
        self._postings = Postings()
        self._sessions: dict[str, tuple[int, list[_Place]]] = {}
        self._session_count = 0
        self._personas: dict[str, int] = {}
        self._speakers: dict[str, int] = {}
        for memory in memories:
            self.put(memory, (vectors or {}).get(memory.id))

    def __len__(self) -> int:
        return len(self._slots)

    def nbytes(self) -> int:
        """Bytes of the index, without the memories themselves."""
        vectors = 0 if self._vectors is None else self._vectors.nbytes
        return self._rows.nbytes + vectors + self._postings.nbytes() + sum(map(getsizeof, self._terms))

    def put(self, memory: Memory, vector: Vector | None = None) -> None:
        """Add a memory, or replace the one of the same id. Without a vector, that of the same text is kept.

        Raises:
            Invalid: the vector has another length than those here; vectors of two embedders cannot be compared.
        """
        unit = self._unit(vector)
        if (old := self._slots.get(memory.id)) is not None:
            same_text = self._memory(old).text == memory.text
            if unit is None and same_text and self._vectors is not None and self._rows["embedded"][old]:
                unit = self._unpacked([old])[0]
            self.remove(memory.id)
        slot = self._new_slot()
        self._slots[memory.id] = slot
        self._memories[slot] = memory
        said = text_terms(memory.text)
        found = said + terms(memory.speaker) + date_terms(memory.said_at)
        self._terms[slot], length = self._postings.add(slot, found)
        self._rows[slot] = (
            memory.said_at.timestamp(),
            memory.expires_at.timestamp() if memory.expires_at else np.inf,
            -np.inf if memory.superseded_by else memory.valid_until.timestamp() if memory.valid_until else np.inf,
            -1,
            -1,
            -1,
            -1 if memory.persona is None else self._personas.setdefault(memory.persona, len(self._personas)),
            self._speakers.setdefault(memory.speaker, len(self._speakers)),
            len(set(said)),
            length,
            0,
            1,
            _KINDS[memory.kind],
            True,
            unit is not None,
        )
        if unit is not None:
            self._hold_vector(slot, unit)
        if memory.session_id:
            self._link(slot, memory)

    def remove(self, memory_id: str) -> None:
        """Remove a memory, if it is there."""
        slot = self._slots.pop(memory_id, None)
        if slot is None:
            return
        memory = self._memory(slot)
        self._postings.discard(slot, self._terms[slot])
        if memory.session_id:
            self._unlink(slot, memory)
        self._memories[slot] = None
        self._terms[slot] = ()
        self._rows[slot] = np.zeros((), _ROW)
        self._rows["norm"][slot] = 1
        if self._vectors is not None:
            self._vectors[slot] = 0
        self._free.append(slot)

    def search(self, query: MemoryQuery, vector: Vector | None, now: datetime) -> tuple[MemoryHit, ...]:
        """The best memories for a query, best first; `vector` is the query's, `None` to search by words alone."""
        dated = read_query(query.text, now)
        rows = self._rows[: len(self._memories)]
        visible = self._visible(query, rows, now)
        wanted = visible & self._wanted(query, rows)
        inside = _inside(rows, dated)
        if dated.only:
            wanted &= inside
        weights = self._weights(query, dated)
        # What has neither letter nor digit means nothing, whatever its vector is.
        unit = self._unit(vector) if any(map(str.isalnum, query.text)) else None
        if not wanted.any() or not (weights or unit is not None or dated.only):
            return ()
        near = find_neighbours(rows["previous"], rows["following"])
        matches = self._postings.match(weights, rows["length"], near, visible)
        cosines = self._cosines(unit, rows)
        eligible = wanted & (matches.scores > 0)
        if dated.only:
            eligible = wanted
        elif cosines is not None:
            eligible |= wanted & (cosines > 0)
        fused = self._fuse(matches, None if cosines is None else self._with_neighbours(cosines, rows, visible), wanted)
        if dated.period is not None:
            fused = fused + PERIOD_WEIGHT * inside
        fused = fused + SPEAKER_WEIGHT * self._named(dated, rows)
        return self._choose(query, rows, np.where(eligible, fused, -1), matches, cosines, weights)

    def _visible(self, query: MemoryQuery, rows: NDArray[np.void], now: datetime) -> Mask:
        """What exists for this query; the rest neither appears nor counts as a neighbour."""
        moment = now.timestamp()
        visible: Mask = rows["live"] & (rows["expires_at"] > moment)
        if not query.superseded:
            visible &= rows["valid_until"] > moment
        if not query.any_persona:
            own = -1 if query.persona is None else self._personas.get(query.persona, -1)
            visible &= (rows["persona"] == -1) | (rows["persona"] == own)
        return visible

    def _wanted(self, query: MemoryQuery, rows: NDArray[np.void]) -> Mask:
        wanted = np.ones(len(rows), np.bool_)
        if query.kinds:
            wanted &= np.isin(rows["kind"], [_KINDS[kind] for kind in query.kinds])
        if query.since is not None:
            wanted &= rows["said_at"] >= query.since.timestamp()
        if query.until is not None:
            wanted &= rows["said_at"] < query.until.timestamp()
        if query.session_id:
            number, _ = self._sessions.get(query.session_id, (-2, []))
            wanted &= rows["session"] == number
        return wanted

    def _weights(self, query: MemoryQuery, dated: Dated) -> dict[str, float]:
        """The terms of the question, each once; in a follow-up those of the conversation before, for less."""
        weights = dict.fromkeys(dated.terms, 1.0)
        if len(weights) <= _FOLLOW_UP_TERMS and not dated.only:
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

    def _named(self, dated: Dated, rows: NDArray[np.void]) -> Mask:
        """What a speaker said whom the question names: an answer about Ann is rather Ann's than the other's."""
        asked = set(dated.terms)
        named = [number for speaker, number in self._speakers.items() if not asked.isdisjoint(terms(speaker))]
        return np.isin(rows["speaker"], named)

    def _cosines(self, unit: Floats | None, rows: NDArray[np.void]) -> Floats | None:
        if unit is None or self._vectors is None:
            return None
        cosines = np.zeros(len(rows), np.float32)
        for start in range(0, len(rows), _CHUNK):
            chunk = self._vectors[start : min(start + _CHUNK, len(rows))]
            cosines[start : start + _CHUNK] = chunk.astype(np.float32) @ unit
        cosines *= rows["scale"]
        return cosines

    def _with_neighbours(self, cosines: Floats, rows: NDArray[np.void], visible: Mask) -> Floats:
        """The cosines of the vectors with a share of their neighbours', without a copy of any vector."""
        padded = np.append(np.where(visible, cosines, 0), np.float32(0))
        around = cosines + NEIGHBOUR_SHARE * (padded[rows["previous"]] + padded[rows["following"]])
        return np.where(rows["embedded"], around / rows["norm"], np.float32(0))

    def _fuse(self, matches: Matches, cosines: Floats | None, wanted: Mask) -> Floats:
        best = float(matches.scores[wanted].max())
        lexical: Floats = matches.scores / np.float32(best or 1)
        if cosines is None:
            return lexical
        return LEXICAL_WEIGHT * lexical + (1 - LEXICAL_WEIGHT) * scale_to_one(cosines, wanted)

    def _choose(
        self,
        query: MemoryQuery,
        rows: NDArray[np.void],
        fused: Floats,
        matches: Matches,
        cosines: Floats | None,
        weights: Mapping[str, float],
    ) -> tuple[MemoryHit, ...]:
        pool = _best(fused, rows["said_at"], np.flatnonzero(fused >= 0), _POOL)
        if not len(pool):
            return ()
        prior = session_scores(fused[pool], rows["session"][pool])
        totals = (fused[pool] + SESSION_WEIGHT * prior).round(6)
        wide = _REPEATS * _CANDIDATES * query.limit
        order = _best(totals, rows["said_at"][pool], np.arange(len(pool)), wide)
        # By score, then the newest, then by id: the order does not depend on the slots.
        keys = zip((-totals[order]).tolist(), (-rows["said_at"][pool[order]]).tolist(), strict=True)
        ids = [self._memory(slot).id for slot in pool[order].tolist()]
        ranked = sorted(zip(keys, ids, order.tolist(), strict=True))[:wide]
        order = np.array([place for _, _, place in ranked])
        distinct, similarities = self._distinct(pool[order], rows, _CANDIDATES * query.limit)
        order = order[distinct]
        candidates = pool[order]
        relevances = scale_to_one(totals[order], np.ones(len(order), np.bool_))
        chosen = rank_by_mmr(relevances.tolist(), similarities**2, query.limit, query.diversity, DUPLICATE_AT)
        hits: list[MemoryHit] = []
        top = float(matches.scores.max()) or 1.0
        alike = similarities[np.ix_(chosen, chosen)].tolist()
        for rank, place in enumerate(chosen):
            slot = int(candidates[place])
            held = set(self._terms[slot])
            scores = MemoryScores(
                lexical=round(float(matches.scores[slot]) / top, 4),
                vector=0.0 if cosines is None else round(max(0.0, float(cosines[slot])), 4),
                coverage=round(float(matches.coverage[slot]), 4),
                session=round(float(prior[order[place]]), 4),
                similarity=round(max(alike[rank][:rank], default=0.0), 4),
                terms=tuple(term for term in weights if term in held),
            )
            hits.append(MemoryHit(memory=self._memory(slot), score=float(totals[order[place]]), scores=scores))
        return tuple(hits)

    def _distinct(self, candidates: NDArray[np.int64], rows: NDArray[np.void], limit: int) -> tuple[list[int], Floats]:
        """The first candidates that repeat no earlier one, and how alike they are; looks at more only as needed."""
        width = limit + limit // 2
        while True:
            similarities = self._similarities(candidates[:width], rows)
            distinct = drop_duplicates(similarities, DUPLICATE_AT)[:limit]
            if len(distinct) == limit or width >= len(candidates):
                return distinct, similarities[np.ix_(distinct, distinct)]
            width *= 2

    def _memory(self, slot: int) -> Memory:
        memory = self._memories[slot]
        assert memory is not None
        return memory

    def _similarities(self, candidates: NDArray[np.int64], rows: NDArray[np.void]) -> Floats:
        """How alike the candidates are: by their terms, stretched to the scale of cosines, and by their vectors."""
        overlaps = self._overlaps(candidates, rows)
        alike: Floats = np.minimum(overlaps * np.float32(DUPLICATE_AT / DUPLICATE_OVERLAP), np.float32(1))
        if self._vectors is not None:
            vectors = self._unpacked(candidates)
            alike = np.maximum(alike, multiply_pairs(vectors))
        return alike

    def _overlaps(self, candidates: NDArray[np.int64], rows: NDArray[np.void]) -> Floats:
        """The share of terms that two texts have in common; 0 for a few, which say too little, 1 for equal texts."""
        # The terms of the text come first, before those of speaker and date.
        said = [
            self._terms[slot][:count]
            for slot, count in zip(candidates.tolist(), rows["said"][candidates].tolist(), strict=True)
        ]
        sizes = np.array([len(each) for each in said])
        hashes = np.fromiter(map(hash, chain.from_iterable(said)), np.int64, int(sizes.sum()))
        different, columns = np.unique(hashes, return_inverse=True)
        held = np.zeros((len(said), max(1, len(different))), np.float32)
        held[np.repeat(np.arange(len(said)), sizes), columns] = 1
        both = multiply_pairs(held)
        overlaps = np.where(both >= _FEW_TERMS, both / np.maximum(sizes[:, None] + sizes[None, :] - both, 1), 0)
        texts: dict[str, int] = {}
        same = [texts.setdefault(self._memory(slot).text.casefold(), slot) for slot in candidates.tolist()]
        overlaps[np.equal.outer(same, same)] = 1
        return overlaps.astype(np.float32)

    def _unit(self, vector: Vector | None) -> Floats | None:
        if vector is None:
            return None
        unit = np.asarray(vector, np.float32)
        if unit.ndim != 1 or (self._vectors is not None and len(unit) != self._vectors.shape[1]):
            raise Invalid("a vector has another length than those of the index")
        length = float(np.linalg.norm(unit))
        return unit / np.float32(length) if 0 < length < np.inf else None

    def _hold_vector(self, slot: int, unit: Floats) -> None:
        if self._vectors is None:
            self._vectors = np.zeros((len(self._rows), len(unit)), np.int8)
        scale = float(np.abs(unit).max()) / 127
        packed = np.rint(unit / scale)
        self._vectors[slot] = packed
        # By the length of what is kept: the cosine of a vector with itself is 1.
        self._rows["scale"][slot] = 1 / sqrt(packed @ packed)

    def _unpacked(self, slots: Sequence[int] | NDArray[np.int64]) -> Floats:
        assert self._vectors is not None
        vectors: Floats = self._vectors[slots].astype(np.float32)
        vectors *= self._rows["scale"][slots][:, None]
        return vectors

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
        self._join(places[at - 1][-1] if at else -1, slot)
        self._join(slot, places[at + 1][-1] if at + 1 < len(places) else -1)
        self._measure(slot)

    def _unlink(self, slot: int, memory: Memory) -> None:
        _, places = self._sessions[memory.session_id]
        del places[bisect_left(places, _place(slot, memory))]
        self._join(int(self._rows["previous"][slot]), int(self._rows["following"][slot]))
        if not places:
            del self._sessions[memory.session_id]

    def _join(self, before: int, after: int) -> None:
        if before >= 0:
            self._rows["following"][before] = after
            self._measure(before)
        if after >= 0:
            self._rows["previous"][after] = before
            self._measure(after)

    def _measure(self, slot: int) -> None:
        """Note how long a vector is with the share of its neighbours."""
        if self._vectors is not None and self._rows["embedded"][slot]:
            row = self._rows[slot]
            own, *others = self._unpacked([slot, *(near for near in (row["previous"], row["following"]) if near >= 0)])
            mixed = own + sum(NEIGHBOUR_SHARE * other for other in others)
            self._rows["norm"][slot] = max(sqrt(mixed @ mixed), 1e-6)


def _place(slot: int, memory: Memory) -> _Place:
    return (memory.seqs, memory.said_at, memory.id, slot)


def _best(scores: Floats, said_at: NDArray[np.float64], found: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """Of the places found, those with the best scores, the newest of equal ones; all of the last score and time."""
    if len(found) <= limit:
        return found
    least = np.partition(scores[found], -limit)[-limit] - 1e-6
    found = found[scores[found] >= least]
    rounded, times = scores[found].round(6), said_at[found]
    last = np.lexsort((-times, -rounded))[limit - 1]
    better = (rounded > rounded[last]) | ((rounded == rounded[last]) & (times >= times[last]))
    best: NDArray[np.int64] = found[better]
    return best


def _inside(rows: NDArray[np.void], dated: Dated) -> Mask:
    if dated.period is None:
        return np.ones(len(rows), np.bool_)
    said_at = rows["said_at"]
    inside: Mask = (said_at >= dated.period.start.timestamp()) & (said_at < dated.period.end.timestamp())
    return inside
