"""The memories of a person with several identities, as one copy, in which a search ranks all of them.

Each memory stays with the identity that said it: this copy is put together of the copies of the owners, and brought up
to date by what differs from them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from tenuto.lru_cache import LruCache
from tenuto.model import Scope
from tenuto.model.memory import Memory
from tenuto.model.scope import owner_key
from tenuto.ports import OwnersOf
from tenuto.recall.owner_cache import OwnerMemories

# So many copies at most, however small they are.
_MOST_PERSONS: Final = 50_000
# More changes are made in a thread.
_AT_ONCE: Final = 500


class PersonMemories:
    """What is read as the memories of a person; `load` gives those of one owner.

    The copies of persons take at most `max_bytes`, beside those of the owners.
    """

    def __init__(self, owners_of: OwnersOf, load: Callable[[Scope], Awaitable[OwnerMemories]], max_bytes: int) -> None:
        self.owners_of = owners_of
        self._load = load
        self._copies = LruCache[bytes, _PersonCopy](
            _MOST_PERSONS, most_weight=max_bytes, weigh=lambda copy: copy.all.nbytes()
        )

    async def load(self, scope: Scope) -> OwnerMemories:
        """The memories of all identities of the person as they are now: nothing is written to this copy."""
        scopes = await self.owners_of(scope)
        owners = [await self._load(one) for one in scopes]
        if len(owners) == 1:
            return owners[0]
        key = b"".join(sorted(map(owner_key, scopes)))
        copy = self._copies.get(key)
        if copy is None:
            self._copies.put(key, copy := _PersonCopy())
        await copy.follow(scopes, owners)
        # Counted as what it holds now.
        self._copies.put(key, copy)
        return copy.all

    async def owner_holding(self, scope: Scope, memory_id: str) -> Scope:
        """The identity of the person that said this; the scope itself where there is no such memory."""
        scopes = await self.owners_of(scope)
        for one in scopes if len(scopes) > 1 else ():
            if memory_id in (await self._load(one)).memories:
                return one
        return scope

    async def show(self, scope: Scope, memory: Memory) -> Memory:
        """A memory of an identity as the person has it: who said it, and what another identity said in its place."""
        seen = (await self.load(scope)).memories.get(memory.id, memory)
        return replace(memory, identity=seen.identity, superseded_by=seen.superseded_by, valid_until=seen.valid_until)

    def clear(self) -> None:
        """Drop all copies."""
        self._copies.clear()


class _PersonCopy:
    def __init__(self) -> None:
        self.all = OwnerMemories()
        # As the owners have them: here, one may have been replaced by what another identity said.
        self._sources: dict[str, Memory] = {}
        self._revisions: list[int] = []

    async def follow(self, scopes: Sequence[Scope], owners: Sequence[OwnerMemories]) -> None:
        async with self.all.lock:
            revisions = sorted(owner.revision for owner in owners)
            if revisions == self._revisions:
                return
            place_of = {memory_id: place for place, owner in enumerate(owners) for memory_id in owner.memories}
            sources = {memory_id: owners[place].memories[memory_id] for memory_id, place in place_of.items()}
            changed = {
                memory_id
                for memory_id, memory in sources.items()
                if self._sources.get(memory_id) is not memory
                or (memory_id in owners[place_of[memory_id]].embedded) != (memory_id in self.all.embedded)
            }
            gone = self._sources.keys() - sources.keys()
            later = _replaced_elsewhere(owners)
            changed |= {
                memory_id
                for memory_id, memory in sources.items()
                if memory_id not in changed
                and self.all.memories[memory_id].superseded_by != _superseded_by(memory, later)
            }

            def show(memory_id: str) -> Memory:
                memory, user = sources[memory_id], scopes[place_of[memory_id]].user or ""
                if memory_id not in later:
                    return replace(memory, identity=user)
                by = later[memory_id]
                return replace(memory, identity=user, superseded_by=by.id, valid_until=by.said_at)

            if len(changed) > _AT_ONCE:
                vectors = {memory_id: owners[place].vector(memory_id) for memory_id, place in place_of.items()}
                fresh = OwnerMemories()
                await asyncio.to_thread(fresh.fill, {memory_id: show(memory_id) for memory_id in sources}, vectors)
                self.all.take(fresh)
            else:
                for memory_id in gone:
                    self.all.remove(memory_id)
                for memory_id in changed:
                    self.all.put(show(memory_id), owners[place_of[memory_id]].vector(memory_id))
            self._sources, self._revisions = sources, revisions


def _superseded_by(memory: Memory, later: Mapping[str, Memory]) -> str:
    return later[memory.id].id if memory.id in later else memory.superseded_by


def _replaced_elsewhere(owners: Sequence[OwnerMemories]) -> dict[str, Memory]:
    """By its id, the later memory of another identity that says the same as one, or takes the place of its subject."""
    texts = [owner.holding_texts() for owner in owners]
    shared = {text for place, one in enumerate(texts) for other in texts[:place] for text in one.keys() & other.keys()}
    later: dict[str, Memory] = {}
    for text in shared:
        same = [owner.memories[one[text]] for owner, one in zip(owners, texts, strict=True) if text in one]
        last = max(same, key=_when)
        later |= {one.id: last for one in same if one is not last}
    subjects: dict[tuple[object, ...], list[tuple[Memory, OwnerMemories]]] = {}
    for owner in owners:
        for one in owner.memories.values():
            if one.subject and not one.superseded_by:
                subjects.setdefault((one.subject, one.kind, one.speaker, one.persona), []).append((one, owner))
    for about in subjects.values():
        last, said_by = max(about, key=lambda said: (said[0].replaces, _when(said[0])))
        if last.replaces:
            others = [one for one, owner in about if owner is not said_by and _when(one) < _when(last)]
            later |= {one.id: last for one in others}
    return later


def _when(memory: Memory) -> tuple[datetime, str]:
    return memory.said_at, memory.id
