"""The memories of one owner in this process: what they are, their index, and which of them say the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from tenuto.model.memory import Memory, MemoryHit, MemoryKind, MemoryQuery
from tenuto.recall.embedding import Vector
from tenuto.recall.lexical import terms
from tenuto.recall.records import MemoryLog

if TYPE_CHECKING:
    from tenuto.recall.index import MemoryIndex

_Identity: TypeAlias = tuple[str, MemoryKind, str, str | None]

# Two statements with the same terms in the same order are about the same, unless there are too few to tell.
_SAME_TERMS: Final = 3


class OwnerMemories:
    """The memories of one owner in this process."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.log = MemoryLog()
        self.loaded_at: datetime | None = None
        self._index: MemoryIndex | None = None
        self.fill({}, {})

    @property
    def weight(self) -> int:
        """What the copy counts in the bound of all copies."""
        return len(self.memories) + 1

    def fill(self, memories: dict[str, Memory], vectors: Mapping[str, Vector | None]) -> None:
        """Take these in place of all others; of vectors of several lengths, the most frequent count."""
        lengths = Counter(len(vector) for vector in vectors.values() if vector is not None)
        self._length = max(lengths, key=lengths.__getitem__, default=0)
        fitting = {name: one for name, one in vectors.items() if one is not None and len(one) == self._length}
        self.memories = memories
        self.embedded = set(fitting)
        self._index = None
        self.preferences: dict[str, Memory] = {}
        self._by_text: dict[_Identity, str] = {}
        self._by_terms: dict[tuple[str, ...], set[str]] = {}
        if memories:
            self._index = _new_index(memories.values(), fitting)
        for memory in memories.values():
            self._note(memory)

    def take(self, other: OwnerMemories) -> None:
        """Take the content of another copy in place of all there is."""
        self.memories, self.embedded, self.preferences = other.memories, other.embedded, other.preferences
        self._index, self._length = other._index, other._length
        self._by_text, self._by_terms = other._by_text, other._by_terms

    def put(self, memory: Memory, vector: Vector | None) -> None:
        """Add a memory, or replace the one of the same id. Without a vector, that of the same text is kept."""
        self.expect_length(vector)
        old = self.memories.get(memory.id)
        if old is not None:
            self._unnote(old)
        if vector is not None:
            self.embedded.add(memory.id)
            self._length = len(vector)
        elif old is None or old.text != memory.text:
            self.embedded.discard(memory.id)
        self.memories[memory.id] = memory
        if self._index is None:
            self._index = _new_index((), {})
        self._index.put(memory, vector)
        self._note(memory)

    def remove(self, memory_id: str) -> None:
        """Remove a memory, if it is there."""
        memory = self.memories.pop(memory_id, None)
        if memory is not None and self._index is not None:
            self.embedded.discard(memory_id)
            self._index.remove(memory_id)
            self._unnote(memory)

    def expect_length(self, vector: Vector | None) -> None:
        """Drop all vectors if the embedder's have another length now: it is another model under the same name."""
        if vector is not None and self.embedded and len(vector) != self._length:
            self.fill(self.memories, {})

    def search(self, query: MemoryQuery, vector: Vector | None, now: datetime) -> tuple[MemoryHit, ...]:
        """The best memories for a query, best first."""
        return () if self._index is None else self._index.search(query, vector, now)

    def same_text(self, memory: Memory) -> Memory | None:
        """The memory that holds and says the same, letter for letter."""
        return self.memories.get(self._by_text.get(_identity(memory), ""))

    def replaced_by(self, memory: Memory) -> list[Memory]:
        """The memories that hold now and that this one takes the place of; none that was said with it."""
        replaced: list[Memory] = []
        about = _terms(memory)
        if memory.kind is not MemoryKind.EPISODE and len(about) >= _SAME_TERMS:
            replaced += [self.memories[memory_id] for memory_id in self._by_terms.get(about, ())]
        if memory.replaces and memory.subject:
            replaced += [one for one in self.memories.values() if one.subject == memory.subject]
        said_with = (memory.session_id, memory.seqs)
        return [
            one
            for one in dict.fromkeys(replaced)
            if not one.superseded_by
            and _identity(one)[1:] == _identity(memory)[1:]
            and not (memory.session_id and (one.session_id, one.seqs) == said_with)
        ]

    def superseded_by(self, memory_ids: Container[str]) -> list[Memory]:
        """The memories whose place one of these has taken."""
        return [one for one in self.memories.values() if one.superseded_by and one.superseded_by in memory_ids]

    def _unnote(self, memory: Memory) -> None:
        self.preferences.pop(memory.id, None)
        if self._by_text.get(_identity(memory)) == memory.id:
            del self._by_text[_identity(memory)]
        about = _terms(memory)
        alike = self._by_terms.get(about, set())
        alike.discard(memory.id)
        if not alike:
            self._by_terms.pop(about, None)

    def _note(self, memory: Memory) -> None:
        if not memory.superseded_by:
            if memory.kind is MemoryKind.PREFERENCE:
                self.preferences[memory.id] = memory
            self._by_text[_identity(memory)] = memory.id
            self._by_terms.setdefault(_terms(memory), set()).add(memory.id)


def _new_index(memories: Iterable[Memory], vectors: Mapping[str, Vector]) -> MemoryIndex:
    # It imports numpy, which takes a tenth of a second: not for a user of whom nothing is remembered.
    from tenuto.recall.index import MemoryIndex

    return MemoryIndex(memories, vectors)


def is_expired(memory: Memory, now: datetime) -> bool:
    """Whether a memory does not exist any more."""
    return memory.expires_at is not None and memory.expires_at <= now


def normal_text(text: str) -> str:
    """A text as it is compared: letter for letter, but for case, spaces and the last full stop."""
    return " ".join(text.casefold().split()).rstrip(".!。！ ")


def _identity(memory: Memory) -> _Identity:
    return normal_text(memory.text), memory.kind, memory.speaker, memory.persona


def _terms(memory: Memory) -> tuple[str, ...]:
    return tuple(terms(memory.text))
