"""How new memories meet those that are there: counted, stored, or in place of an earlier one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from msgspec.structs import replace

from tenuto.errors import Conflict, Invalid
from tenuto.model import Scope
from tenuto.model.memory import Memory, MemoryKind
from tenuto.recall.embedding import Vector
from tenuto.recall.owner import OwnerMemories
from tenuto.recall.records import MemoryRecords

MAX_PREFERENCES: Final = 200
"""Preferences of one owner: all of them stand in every prompt."""
_TRIES: Final = 5


class Merge:
    """Changes to the memories of an owner, by a caller that holds the lock of their copy.

    New memories are in the copy at once, so that the next one meets them, and in the store after `store`. `kept` stands
    for what was added, `changed` are the ids to announce.
    """

    def __init__(self, records: MemoryRecords, scope: Scope, owner: OwnerMemories) -> None:
        self.kept: list[Memory] = []
        self.changed: list[str] = []
        self._records = records
        self._scope = scope
        self._owner = owner
        self._new: list[_NewMemory] = []

    async def add(self, memory: Memory, vector: Vector | None) -> None:
        """Add a memory.

        Raises:
            Invalid: the owner has too many preferences.
        """
        self.kept.append(await self._add(memory, vector))

    async def _add(self, memory: Memory, vector: Vector | None) -> Memory:
        owner = self._owner
        if memory.id in owner.memories:
            return owner.memories[memory.id]
        same = owner.same_text(memory)
        if same is not None:
            await self.store()
            return await self.rewrite(same.id, lambda one: _mentioned(one, memory)) or memory
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
        self.changed += [one.memory.id for one in self._new]
        written = await asyncio.gather(*[self._records.add(self._scope, one.memory, one.vector) for one in self._new])
        new, self._new = self._new, []
        stored = {one.id: one for one in written if one is not None}
        for one in new:
            as_stored = stored.get(one.memory.id)
            if as_stored is None:
                continue
            if as_stored != one.memory:
                self._owner.put(as_stored, one.vector)
            for memory_id in one.earlier:
                await self._supersede(memory_id, one.memory)
        self.kept = [stored.get(one.id, one) for one in self.kept]

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
            stored = await self._records.read(self._scope, memory_id)
            if stored is None:
                self._owner.remove(memory_id)
                return None
            written = await self._records.write(self._scope, change(stored.memory), stored.version)
            if written is not None:
                self._owner.put(written, stored.vector)
                self.changed.append(memory_id)
                return written
        raise Conflict("the memory is being changed by others; try again")

    async def _supersede(self, memory_id: str, by: Memory) -> None:
        known = self._owner.memories.get(memory_id)
        if known is not None and known.superseded_by:
            # One that was added between them has taken its place.
            return
        await self.rewrite(memory_id, lambda one: replace(one, valid_until=by.said_at, superseded_by=by.id))


class _NewMemory(NamedTuple):
    memory: Memory
    vector: Vector | None
    earlier: list[str]


def _mentioned(memory: Memory, again: Memory) -> Memory:
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
