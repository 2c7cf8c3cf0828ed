"""The index over the memories of one owner: BM25 with neighbours, exact vectors, fusion, duplicate threshold, MMR.

It lives in one process and holds nothing that the store does not: the ranking is the same over every backend, also
over encrypted stores. numpy is loaded with this module, which only a search or a capture needs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from sys import getsizeof
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tenuto.errors import Invalid
from tenuto.model.memory import Memory, MemoryHit, MemoryKind, MemoryQuery, MemoryScores
from tenuto.recall.dates import Dated, date_terms, read_query, text_terms
from tenuto.recall.lexical import terms
from tenuto.recall.postings import NEIGHBOUR_SHARE, Floats, Mask, Matches, Neighbours, Postings
from tenuto.recall.ranking import rank_by_mmr, scale_to_one, session_scores

Vector: TypeAlias = Sequence[float] | NDArray[np.float32]

DUPLICATE_COSINE: Final = 0.85
"""From which cosine on two memories say the same; measured with the local embedder."""
DUPLICATE_OVERLAP: Final = 0.6
"""The same for memories without vectors: the share of their terms that both have."""
LEXICAL_WEIGHT: Final = 0.6
SESSION_WEIGHT: Final = 0.3
PERIOD_WEIGHT: Final = 0.3
TALK_WEIGHT: Final = 0.3
"""What a term of the conversation before counts in a follow-up question."""
MAX_TERMS: Final = 128
"""Terms of one query; of more, the rarest count."""
_POOL: Final = 1_000
"""Memories that the session prior looks at: the best by their own scores."""
_CANDIDATES: Final = 3
"""Candidates of MMR for each hit that is asked for."""
_FOLLOW_UP_TERMS: Final = 2

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
        ("length", "f4"),
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
        self._vectors: Floats | None = None
        self._postings = Postings()
        self._sessions: dict[str, tuple[int, list[_Place]]] = {}
        self._session_count = 0
        self._personas: dict[str, int] = {}
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
            known = self._memories[old]
            assert known is not None
            if unit is None and known.text == memory.text and self._vectors is not None and self._rows["embedded"][old]:
                unit = self._vectors[old].copy()
            self.remove(memory.id)
        slot = self._new_slot()
        self._slots[memory.id] = slot
        self._memories[slot] = memory
        self._terms[slot], length = self._postings.add(
            slot, text_terms(memory.text) + terms(memory.speaker) + date_terms(memory.said_at)
        )
        self._rows[slot] = (
            memory.said_at.timestamp(),
            memory.expires_at.timestamp() if memory.expires_at else np.inf,
            -np.inf if memory.superseded_by else memory.valid_until.timestamp() if memory.valid_until else np.inf,
            -1,
            -1,
            -1,
            -1 if memory.persona is None else self._personas.setdefault(memory.persona, len(self._personas)),
            length,
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
        memory = self._memories[slot]
        assert memory is not None
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
        unit = self._unit(vector)
        if not wanted.any() or not (weights or unit is not None or dated.only):
            return ()
        near = Neighbours(rows["previous"], rows["following"])
        matches = self._postings.match(weights, rows["length"], near, visible)
        cosines = self._cosines(unit, rows)
        fused = self._fuse(matches, None if cosines is None else self._with_neighbours(cosines, rows, visible), wanted)
        if dated.only:
            fused = fused + wanted
        elif dated.period is not None:
            fused = fused + PERIOD_WEIGHT * (inside & (fused > 0))
        return self._choose(query, rows, fused, matches, cosines, weights)

    def _visible(self, query: MemoryQuery, rows: NDArray[np.void], now: datetime) -> Mask:
        """What exists for this query; the rest neither appears nor counts as a neighbour."""
        moment = now.timestamp()
        visible: Mask = rows["live"] & (rows["expires_at"] > moment)
        if not query.superseded:
            visible &= rows["valid_until"] > moment
        if query.persona is not None:
            visible &= (rows["persona"] == -1) | (rows["persona"] == self._personas.get(query.persona, -1))
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
            rarest = sorted(weights, key=lambda term: (-weights[term], self._postings.count(term)))[:MAX_TERMS]
            weights = {term: weights[term] for term in rarest}
        return weights

    def _cosines(self, unit: Floats | None, rows: NDArray[np.void]) -> Floats | None:
        if unit is None or self._vectors is None:
            return None
        return np.where(rows["embedded"], self._vectors[: len(rows)] @ unit, np.float32(0))

    def _with_neighbours(self, cosines: Floats, rows: NDArray[np.void], visible: Mask) -> Floats:
        """The cosines of the vectors with a share of their neighbours', without a copy of any vector."""
        padded = np.append(np.where(visible, cosines, 0), np.float32(0))
        around = cosines + NEIGHBOUR_SHARE * (padded[rows["previous"]] + padded[rows["following"]])
        return np.where(rows["embedded"], around / rows["norm"], np.float32(0))

    def _fuse(self, matches: Matches, cosines: Floats | None, wanted: Mask) -> Floats:
        lexical = scale_to_one(matches.scores, wanted)
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
        pool = self._pool(fused, rows)
        if not len(pool):
            return ()
        prior = session_scores(fused[pool], rows["session"][pool])
        totals = (fused[pool] + SESSION_WEIGHT * prior).round(6)
        order = np.lexsort((-rows["said_at"][pool], -totals))[: _CANDIDATES * query.limit]
        candidates = pool[order]
        relevances = totals[order] / max(float(totals.max()), 1e-9)
        similarities = self._similarities(candidates, rows)
        chosen = rank_by_mmr(relevances.tolist(), similarities, query.limit, query.diversity, 1.0)
        hits: list[MemoryHit] = []
        top = float(matches.scores.max()) or 1.0
        for rank, place in enumerate(chosen):
            slot = int(candidates[place])
            memory = self._memories[slot]
            assert memory is not None
            held = set(self._terms[slot])
            scores = MemoryScores(
                lexical=round(float(matches.scores[slot]) / top, 4),
                vector=0.0 if cosines is None else round(max(0.0, float(cosines[slot])), 4),
                coverage=round(float(matches.coverage[slot]), 4),
                session=round(float(prior[order[place]]), 4),
                similarity=round(max((float(similarities[place, other]) for other in chosen[:rank]), default=0.0), 4),
                terms=tuple(term for term in weights if term in held),
            )
            hits.append(MemoryHit(memory=memory, score=float(totals[order[place]]), scores=scores))
        return tuple(hits)

    def _pool(self, fused: Floats, rows: NDArray[np.void]) -> NDArray[np.int64]:
        """The best memories by their own scores, in the order of their ids."""
        found = np.flatnonzero(fused > 0)
        if len(found) > _POOL:
            order = np.lexsort((-rows["said_at"][found], -fused[found].round(6)))
            found = found[order[:_POOL]]
        return np.array(sorted(found.tolist(), key=self._id_of), np.int64)

    def _id_of(self, slot: int) -> str:
        memory = self._memories[slot]
        assert memory is not None
        return memory.id

    def _similarities(self, candidates: NDArray[np.int64], rows: NDArray[np.void]) -> Floats:
        """How alike the candidates are, 1 where they count as duplicates: by vectors, by terms where there is none."""
        alike: Floats = self._overlaps(candidates) / np.float32(DUPLICATE_OVERLAP)
        if self._vectors is not None:
            vectors = self._vectors[candidates]
            embedded = rows["embedded"][candidates]
            both = embedded[:, None] & embedded[None, :]
            alike = np.where(both, vectors @ vectors.T / np.float32(DUPLICATE_COSINE), alike)
        return np.minimum(alike, np.float32(1))

    def _overlaps(self, candidates: NDArray[np.int64]) -> Floats:
        numbers: dict[str, int] = {}
        sets = [[numbers.setdefault(term, len(numbers)) for term in self._terms[slot]] for slot in candidates]
        held = np.zeros((len(sets), max(1, len(numbers))), np.float32)
        for place, columns in enumerate(sets):
            held[place, columns] = 1
        both = held @ held.T
        sizes = held.sum(axis=1)
        overlaps: Floats = both / np.maximum(sizes[:, None] + sizes[None, :] - both, 1)
        return overlaps

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
            self._vectors = np.zeros((len(self._rows), len(unit)), np.float32)
        self._vectors[slot] = unit

    def _new_slot(self) -> int:
        if self._free:
            return self._free.pop()
        slot = len(self._memories)
        if slot == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros(slot // 2, _ROW)])
            if self._vectors is not None:
                more = np.zeros((slot // 2, self._vectors.shape[1]), np.float32)
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
            mixed = self._vectors[slot].copy()
            for side in ("previous", "following"):
                if (near := self._rows[side][slot]) >= 0:
                    mixed += NEIGHBOUR_SHARE * self._vectors[near]
            self._rows["norm"][slot] = max(float(np.linalg.norm(mixed)), 1e-6)


def _place(slot: int, memory: Memory) -> _Place:
    return (memory.seqs, memory.said_at, memory.id, slot)


def _inside(rows: NDArray[np.void], dated: Dated) -> Mask:
    if dated.period is None:
        return np.ones(len(rows), np.bool_)
    said_at = rows["said_at"]
    inside: Mask = (said_at >= dated.period.start.timestamp()) & (said_at < dated.period.end.timestamp())
    return inside
