"""How new memories meet those that are there: counted, stored, or in place of an earlier one."""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import mul
from typing import Final, NamedTuple

from msgspec.structs import replace

from tenuto.errors import Conflict, Invalid
from tenuto.model import Scope
from tenuto.model.memory import Memory, MemoryKind, MemorySource
from tenuto.recall.embedding import Vector
from tenuto.recall.lexical import terms
from tenuto.recall.owner_cache import OwnerMemories, is_expired
from tenuto.recall.records import MemoryRecords

MAX_PREFERENCES: Final = 200
"""Preferences of one owner: all of them stand in every prompt."""
RELATED_AT: Final = 0.3
"""From which cosine on two statements without a common term are about the same; measured with the local embedder: "I
live in Rome" and "I moved to Milan" have .50, "I work at Acme" and "My dog is called Rex" .16."""
_TRIES: Final = 5


class Merge:
    """Changes to the memories of an owner, by a caller that holds the lock of their copy.

    New memories are in the copy at once, so that the next one meets them, and in the store after `store`. `memories`
    are what stands for the added ones, `changed_ids` are to be announced.
    """

    def __init__(self, records: MemoryRecords, scope: Scope, owner: OwnerMemories) -> None:
        self.memories: list[Memory] = []
        self.changed_ids: list[str] = []
        self._records = records
        self._scope = scope
        self._owner = owner
        self._new: list[_NewMemory] = []

    async def add(self, memory: Memory, vector: Vector | None) -> None:
        """Add a memory.

        Raises:
            Invalid: the owner has too many preferences.
        """
        self.memories.append(await self._add(memory, vector))

    async def _add(self, memory: Memory, vector: Vector | None) -> Memory:
        owner = self._owner
        if memory.id in owner.memories:
            return owner.memories[memory.id]
        same = owner.same_text(memory)
        # One that had expired when this was said does not exist, though it may still be stored.
        if same is not None and not is_expired(same, memory.said_at):
            await self.store()
            again = await self.rewrite(same.id, lambda one: _mention_again(one, memory))
            if again is not None:
                return again
            # Another process has removed it in this moment.
        if memory.kind is MemoryKind.PREFERENCE and len(owner.preferences) >= MAX_PREFERENCES:
            raise Invalid(f"at most {MAX_PREFERENCES} preferences are remembered")
        earlier = [one.id for one in owner.replaced_by(memory) if one.said_at <= memory.said_at]
        owner.put(memory, vector)
        self._new.append(_NewMemory(memory, vector, earlier))
        return memory

    async def store(self) -> None:
        """Store the new memories, all at once; then each takes the place of its earlier ones."""
        if not self._new:
            return
        # Announced in any case: a process that stored one of them may have died before it did so.
        self.changed_ids += [one.memory.id for one in self._new]
        results = await self._records.add_all(self._scope, [(one.memory, one.vector) for one in self._new])
        new, self._new = self._new, []
        by_id = {one.id: one for one in results if one is not None}
        for one in new:
            row = by_id.get(one.memory.id)
            if row is None:
                continue
            if row != one.memory:
                self._owner.put(row, one.vector)
            for memory_id in one.earlier:
                await self._supersede(memory_id, one)
        self.memories = [by_id.get(one.id, one) for one in self.memories]

    def drop_unstored(self) -> None:
        """Have the copy loaded again if it holds memories that are not stored."""
        if self._new:
            self._owner.loaded_at = None

    async def rewrite(self, memory_id: str, change: Callable[[Memory], Memory]) -> Memory | None:
        """Change the stored memory, whatever this copy says of it; its text stays. `None` if it is gone.

        Raises:
            Conflict: other processes change it at the same time.
        """
        for _ in range(_TRIES):
            row = await self._records.read(self._scope, memory_id)
            if row is None:
                self._owner.remove(memory_id)
                return None
            memory = await self._records.write(self._scope, change(row.memory), row.version)
            if memory is not None:
                self._owner.put(memory, row.vector)
                self.changed_ids.append(memory_id)
                return memory
        raise Conflict("the memory is being changed by others; try again")

    async def _supersede(self, memory_id: str, new: _NewMemory) -> None:
        memory = self._owner.memories.get(memory_id)
        if memory is None or memory.superseded_by:
            # One that was added between them has taken its place.
            return
        by = new.memory
        if by.source is MemorySource.MODEL and not await self._are_related(memory, new):
            return
        await self.rewrite(memory_id, lambda one: replace(one, valid_until=by.said_at, superseded_by=by.id))

    async def _are_related(self, earlier: Memory, new: _NewMemory) -> bool:
        """Whether what two memories say is about the same, which a model's label for their subject alone does not tell.

        They share a term, or are near by their vectors. Where neither is known, both hold, each with its date.
        """
        if not set(terms(earlier.text)).isdisjoint(terms(new.memory.text)):
            return True
        if new.vector is None:
            return False
        row = await self._records.read(self._scope, earlier.id)
        if row is None or row.vector is None or len(row.vector) != len(new.vector):
            return False
        lengths = math.hypot(*row.vector) * math.hypot(*new.vector)
        return lengths > 0 and sum(map(mul, row.vector, new.vector)) >= RELATED_AT * lengths


class _NewMemory(NamedTuple):
    memory: Memory
    vector: Vector | None
    earlier: list[str]


def _mention_again(memory: Memory, again: Memory) -> Memory:
    """A memory that was said once more: its place is the last one, and it lives on from there."""
    if again.said_at < memory.said_at:
        return replace(memory, mentions=memory.mentions + 1)
    expires = memory.expires_at and max(memory.expires_at, again.expires_at or memory.expires_at)
    return replace(
        memory,
        mentions=memory.mentions + 1,
        said_at=again.said_at,
        session_id=again.session_id or memory.session_id,
        seqs=again.seqs or memory.seqs,
        expires_at=expires,
    )
