"""The index over the memories of one owner, as it is held in this process: their terms, vectors and neighbours.

It holds nothing that the store does not: the ranking is the same over every backend, also over encrypted stores.
`index_search` searches it. numpy is loaded with this module, which only a search or a capture needs.
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
from tenuto.model.memory import Memory, MemoryKind
from tenuto.recall.blocks import MAX_COUNT, BlockWriter, IndexBlock, Vector, memory_terms, quantize
from tenuto.recall.dates import text_terms
from tenuto.recall.postings import COUNT_BITS, NEIGHBOUR_SHARE, Mask, Postings, Visible

Steps: TypeAlias = NDArray[np.int8]

KINDS: Final = {kind: number for number, kind in enumerate(MemoryKind)}
"""The numbers of the kinds in the rows."""
_CHUNK: Final = 512
# What a memory takes in lists and tables of Python objects, beside its terms.
_SLOT_BYTES: Final = 250
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


class FilterView(NamedTuple):
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


_Place: TypeAlias = tuple[tuple[int, ...], datetime, str, int]


class MemoryIndex:
    """Holds the memories of one owner in this process; the caller stores them.

    Not safe for several threads at once. A memory has a slot, a number below the length of `rows`. `view` is what the
    last search was allowed to see; it goes with each change.
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
        self.postings = Postings()
        self.sessions: dict[str, tuple[int, list[_Place]]] = {}
        self._session_count = 0
        self.personas: dict[str, int] = {}
        self.speakers: dict[str, int] = {}
        self.view: FilterView | None = None
        for memory in memories:
            self.put(memory, (vectors or {}).get(memory.id))

    def __len__(self) -> int:
        return len(self._slots)

    def nbytes(self) -> int:
        """Bytes of the index, about, without the memories themselves."""
        vectors = 0 if self._vectors is None else self._vectors.nbytes
        view = 0 if self.view is None else self.view.visible.nbytes()
        own = _SLOT_BYTES * len(self._memories) + 9 * self._term_count
        return self._rows.nbytes + vectors + view + self.postings.nbytes() + own

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
            memory = self.memory(slot)
            writer.add(
                memory, self.terms_of(slot), self._counts_of(slot), int(row["said"]), float(row["length"]), vector
            )
        return writer.finish()

    def same_terms(self, text: str) -> list[Memory]:
        """The memories whose texts have the same different terms as this one."""
        unique = set(text_terms(text))
        slots = self.postings.slots(min(unique, key=self.postings.count)) if unique else ()
        alike = [slot for slot in slots if set(self.terms_of(slot)[: int(self._rows["said"][slot])]) == unique]
        return [self.memory(slot) for slot in alike]

    def put(self, memory: Memory, vector: Vector | None = None) -> None:
        """Add a memory, or replace the one of the same id. Without a vector, that of the same text is kept.

        Raises:
            Invalid: the vector has another length than those here; vectors of two embedders cannot be compared.
        """
        steps = self._steps(vector)
        if (old := self._slots.get(memory.id)) is not None:
            same_text = self.memory(old).text == memory.text
            if steps is None and same_text and self._vectors is not None and self._rows["embedded"][old]:
                steps = self._vectors[old].copy()
            self.remove(memory.id)
        slot = self._new_slot()
        self.view = None
        self._slots[memory.id] = slot
        self._memories[slot] = memory
        found = memory_terms(memory)
        self._terms[slot] = self.postings.add(slot, found.counts)
        self._counts[slot] = bytes([min(count, MAX_COUNT) for count in found.counts.values()])
        self._term_count += len(found.counts)
        self._rows[slot] = (
            memory.said_at.timestamp(),
            _expires_at(memory),
            _valid_until(memory),
            -1,
            -1,
            -1,
            -1 if memory.persona is None else self.personas.setdefault(memory.persona, len(self.personas)),
            self.speakers.setdefault(memory.speaker, len(self.speakers)),
            found.said,
            found.counts.total(),
            0,
            1,
            KINDS[memory.kind],
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
        self.view = None
        memory = self.memory(slot)
        its_terms = self.terms_of(slot)
        self.postings.discard(slot, its_terms)
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

    @property
    def rows(self) -> NDArray[np.void]:
        """The numbers of each slot, in use or free."""
        return self._rows[: len(self._memories)]

    @property
    def vectors(self) -> NDArray[np.int8] | None:
        """The vector of each slot, 0 without one; `None` if no memory has any. It stands for `scale` times as much."""
        return None if self._vectors is None else self._vectors[: len(self._memories)]

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
                -1 if one.persona is None else self.personas.setdefault(one.persona, len(self.personas))
                for one in memories
            ),
            "speaker": (self.speakers.setdefault(one.speaker, len(self.speakers)) for one in memories),
            "kind": [KINDS[memory.kind] for memory in memories],
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
        self.postings.fill(names, places, entries)
        self._filled = _FilledTerms(names, places, counts, np.append(0, np.cumsum(sizes, dtype=np.int64)))
        self._terms, self._counts = [None] * len(sizes), [b""] * len(sizes)
        self._term_count = len(places)

    def terms_of(self, slot: int) -> tuple[str, ...]:
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

    def memory(self, slot: int) -> Memory:
        """The memory in a slot."""
        memory = self._memories[slot]
        assert memory is not None
        return memory

    def _hold_vector(self, slot: int, steps: Steps) -> None:
        if self._vectors is None:
            self._vectors = np.zeros((len(self._rows), len(steps)), np.int8)
        self._vectors[slot] = steps
        # By the length of what is kept: the cosine of a vector with itself is 1.
        numbers = steps.astype(np.float32)
        self._rows["scale"][slot] = 1 / sqrt(numbers @ numbers)

    def _steps(self, vector: Vector | None) -> Steps | None:
        if vector is None:
            return None
        self.check_length(vector)
        return quantize(vector)

    def check_length(self, vector: Vector) -> None:
        """Refuse a vector of another length than those here."""
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
        if memory.session_id not in self.sessions:
            self.sessions[memory.session_id] = (self._session_count, [])
            self._session_count += 1
        number, places = self.sessions[memory.session_id]
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
        _, places = self.sessions[memory.session_id]
        del places[bisect_left(places, _place(slot, memory))]
        before, after = int(self._rows["previous"][slot]), int(self._rows["following"][slot])
        self._join(before, after)
        self._measure([before, after])
        if not places:
            del self.sessions[memory.session_id]

    def _link_all(self) -> None:
        """As `_link` for all memories, of which none is linked yet."""
        for slot, memory in enumerate(self._memories):
            if memory is not None and memory.session_id:
                self.sessions.setdefault(memory.session_id, (len(self.sessions), []))[1].append(_place(slot, memory))
        self._session_count = len(self.sessions)
        for number, places in self.sessions.values():
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


def _place(slot: int, memory: Memory) -> _Place:
    return (memory.seqs, memory.said_at, memory.id, slot)


def _expires_at(memory: Memory) -> float:
    return memory.expires_at.timestamp() if memory.expires_at else inf


def _valid_until(memory: Memory) -> float:
    if memory.superseded_by:
        return -inf
    return memory.valid_until.timestamp() if memory.valid_until else inf
