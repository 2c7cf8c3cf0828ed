"""The memories of one owner in this process: what they are, their index, and which of them say the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from tenuto.model.memory import Memory, MemoryKind
from tenuto.recall.embedding import Vector
from tenuto.recall.index import MemoryIndex
from tenuto.recall.lexical import terms
from tenuto.recall.records import LogMark

# Two statements with the same terms are about the same, unless there are too few to tell.
_SAME_TERMS: Final = 3


class OwnerMemories:
    """The memories of one owner in this process."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.mark = LogMark()
        self.loaded_at: datetime | None = None
        self.fill({}, {})

    def fill(self, memories: dict[str, Memory], vectors: Mapping[str, Vector | None]) -> None:
        """Take these in place of all others."""
        lengths = Counter(len(vector) for vector in vectors.values() if vector is not None)
        length = max(lengths, key=lengths.__getitem__, default=0)
        self.memories = memories
        self.vectors = {
            name: vector for name, vector in vectors.items() if vector is not None and len(vector) == length
        }
        self.index = MemoryIndex(memories.values(), self.vectors)
        self._by_text: dict[str, str] = {}
        self._by_terms: dict[frozenset[str], set[str]] = {}
        for memory in memories.values():
            self._note(memory)

    def put(self, memory: Memory, vector: Vector | None) -> None:
        """Add a memory, or replace the one of the same id."""
        self.expect_length(vector)
        self.remove(memory.id)
        self.memories[memory.id] = memory
        if vector is not None:
            self.vectors[memory.id] = vector
        self.index.put(memory, vector)
        self._note(memory)

    def expect_length(self, vector: Vector | None) -> None:
        """Drop all vectors if the embedder's have another length now: it is another model under the same name."""
        held = next(iter(self.vectors.values()), None)
        if vector is not None and held is not None and len(held) != len(vector):
            self.fill(self.memories, {})

    def remove(self, memory_id: str) -> None:
        """Remove a memory, if it is there."""
        memory = self.memories.pop(memory_id, None)
        if memory is not None:
            self.vectors.pop(memory_id, None)
            self.index.remove(memory_id)
            if self._by_text.get(_normal(memory.text)) == memory_id:
                del self._by_text[_normal(memory.text)]
            self._by_terms.get(_term_set(memory), set()).discard(memory_id)

    def same_text(self, memory: Memory) -> Memory | None:
        """The memory that holds and says the same, letter for letter."""
        found = self.memories.get(self._by_text.get(_normal(memory.text), ""))
        same = found is not None and found.kind is memory.kind and found.speaker == memory.speaker
        return found if same and found is not None and found.persona == memory.persona else None

    def replaced_by(self, memory: Memory) -> list[Memory]:
        """The memories that hold now and that this one takes the place of."""
        about = _term_set(memory)
        compares = memory.kind is not MemoryKind.EPISODE and len(about) >= _SAME_TERMS
        near = self._by_terms.get(about, set()) if compares else set()
        found = [self.memories[memory_id] for memory_id in near]
        if memory.subject:
            found += [one for one in self.memories.values() if one.subject == memory.subject]
        return [
            one
            for one in dict.fromkeys(found)
            if not one.superseded_by
            and one.kind is memory.kind
            and (one.speaker, one.persona) == (memory.speaker, memory.persona)
        ]

    def _note(self, memory: Memory) -> None:
        if not memory.superseded_by:
            self._by_text[_normal(memory.text)] = memory.id
            self._by_terms.setdefault(_term_set(memory), set()).add(memory.id)


def is_expired(memory: Memory, now: datetime) -> bool:
    """Whether a memory does not exist any more."""
    return memory.expires_at is not None and memory.expires_at <= now


def _normal(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".!。！ ")


def _term_set(memory: Memory) -> frozenset[str]:
    """What a memory is about; texts without terms are about nothing in common."""
    return frozenset(terms(memory.text)) or frozenset((memory.id,))
