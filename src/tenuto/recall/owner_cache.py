"""The copies of owners' memories in this process: loaded once, kept current by the log of changes, bounded.

A copy is loaded by a task of its own, which all its callers wait for and which goes on when they do not wait any more:
the next caller finds it loaded. It is filled in a thread, so that no other user waits for it: from the stored index and
what changed since, or from all rows where there is none. That of a large owner is saved again after some changes.

A caller that changes a copy holds its lock; a thread that searches it is waited for even when its caller is gone.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Container, Coroutine, Iterable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import count, islice
from sys import getsizeof
from typing import TYPE_CHECKING, Final, TypeAlias

from tenuto.background import run_in_background
from tenuto.lru_cache import LruCache
from tenuto.model import Scope
from tenuto.model.memory import Memory, MemoryHit, MemoryKind, MemoryQuery
from tenuto.model.scope import owner_key
from tenuto.ports import Clock
from tenuto.recall.embedding import Vector
from tenuto.recall.lexical import terms
from tenuto.recall.records import MemoryLog, MemoryRecords
from tenuto.recall.stored_index import BLOCK, SavedBlocks, StoredIndex
from tenuto.recall.unread_marks import ChangeMarks, ReadThrough

if TYPE_CHECKING:
    from tenuto.recall.blocks import IndexBlock
    from tenuto.recall.index import MemoryIndex

_Identity: TypeAlias = tuple[str, MemoryKind, str, str | None]

CHANGES_AT_ONCE: Final = 32
"""Changes of a copy that take some milliseconds: after so many, other calls have their turn."""
# Two statements with the same terms in the same order are about the same, unless there are too few to tell.
_SAME_TERMS: Final = 3
# So many copies at most, however small they are.
_MOST_OWNERS: Final = 50_000
# A copy is compared with the rows after this time: a process may die between a change and its entry in the log.
_LIFE: Final = timedelta(minutes=10)
# A larger copy is filled and searched in a thread, and its index is stored.
_AT_ONCE: Final = 500
# What a memory takes beside its text and its place in the index: itself, its id, its places in tables.
_MEMORY_BYTES: Final = 1_100
_OWNER_BYTES: Final = 4_096
_PAGE: Final = 500
_SAVE: Final = b"save"
_log = logging.getLogger(__name__)
_revisions: Final = count(1)


class OwnerCache:
    """The copies, and what runs in the background for them."""

    def __init__(self, records: MemoryRecords, stored: StoredIndex, clock: Clock, max_bytes: int) -> None:
        self._records = records
        self._stored = stored
        self._clock = clock
        self._owners = LruCache[bytes, OwnerMemories](
            _MOST_OWNERS, most_weight=max_bytes, weigh=lambda owner: owner.nbytes()
        )
        self._tasks: dict[bytes, asyncio.Task[None]] = {}
        self._loads: set[asyncio.Task[None]] = set()

    async def load(self, scope: Scope) -> OwnerMemories:
        """The owner's memories as they are stored now."""
        async with self.current(scope) as owner:
            return owner

    @asynccontextmanager
    async def current(self, scope: Scope) -> AsyncIterator[OwnerMemories]:
        """The owner's memories as they are stored now, under their lock."""
        key = owner_key(scope)
        owner = self._owners.get(key)
        if owner is None:
            self._owners.put(key, owner := OwnerMemories())
        try:
            while True:
                async with owner.lock:
                    if await self._refresh(scope, owner):
                        yield owner
                        break
                await self._join_load(scope, owner)
            now = self._clock()
            if owner.loaded_at is not None and now - owner.loaded_at > _LIFE:
                owner.loaded_at = now
                self.run(b"compare" + key, self._compare(scope, owner))
            if len(owner.memories) > _AT_ONCE and len(owner.saved.unsaved) >= owner.saved.save_at:
                self.run(_SAVE + key, self._save(scope, owner))
        finally:
            # Also of a copy that could not be loaded: in an outage, every user who asks would leave one behind.
            self._weigh(key, owner)

    async def announce(
        self,
        scope: Scope,
        owner: OwnerMemories,
        memory_ids: Sequence[str],
        progress: Mapping[str, ReadThrough] | None = None,
    ) -> None:
        """Tell other processes of changes that this copy has; the caller holds its lock."""
        log = await self._records.log_change(scope, owner.log, memory_ids, progress)
        # With a change of another process in between, the next load reads both.
        if owner.log.is_continued_by(log):
            owner.log = log

    async def change_marks(self, scope: Scope, change: ChangeMarks) -> MemoryLog:
        """Change the marks of unread sessions, for which no memories need be loaded; returns the log with that."""
        owner = self._owners.peek(owner_key(scope))
        if owner is None or owner.loaded_at is None:
            return await self._records.change_marks(scope, MemoryLog(), change)
        async with owner.lock:
            log = await self._records.change_marks(scope, owner.log, change)
            if owner.log.is_continued_by(log):
                owner.log = log
            return log

    def last_log(self, scope: Scope) -> MemoryLog:
        """The log of an owner as this process knows it."""
        owner = self._owners.peek(owner_key(scope))
        return owner.log if owner is not None else MemoryLog()

    async def forget_stored(self, scope: Scope, owner: OwnerMemories, memory_ids: Set[str]) -> None:
        """Take memories out of the stored index, before their rows change; the caller holds the lock of the copy."""
        saved = owner.saved
        if owner.memories.keys() <= memory_ids:
            await self._stored.drop(scope)
            saved.reset(owner.memories)
            saved.version = 0
            return
        await self._stored.drop_unknown(scope, saved, owner.memories)
        for name, held in saved.blocks.items():
            if gone := {one for one in held if one in memory_ids}:
                saved.unsaved |= gone
                held -= gone
                await self._stored.write(scope, await owner.block(held), name)

    async def remove(self, owner: OwnerMemories, memory_ids: Sequence[str]) -> None:
        """Take memories out of a copy whose rows are gone; the caller holds its lock."""
        try:
            if len(memory_ids) > _AT_ONCE:
                await self._remove_many(owner, set(memory_ids))
                return
            for place, memory_id in enumerate(memory_ids, 1):
                owner.remove(memory_id)
                if not place % CHANGES_AT_ONCE:
                    await asyncio.sleep(0)
        except BaseException:
            owner.loaded_at = None
            raise

    async def _remove_many(self, owner: OwnerMemories, gone: Set[str]) -> None:
        """Have the copy without these made in a thread: to take out one takes longer the more there are."""
        left = [one for one in owner.memories if one not in gone]
        fresh = OwnerMemories()
        await asyncio.to_thread(fresh.fill_blocks, [await owner.block(left)] if left else [])
        fresh.saved = owner.saved
        for memory_id in gone:
            fresh.saved.remove(memory_id)
        owner.take(fresh)

    async def search(self, owner: OwnerMemories, query: MemoryQuery, vector: Vector | None) -> tuple[MemoryHit, ...]:
        """Search a copy; a large one in a thread."""
        now = self._clock()
        if len(owner.memories) <= _AT_ONCE:
            owner.expect_length(vector)
            return owner.search(query, vector, now)
        async with owner.lock:
            owner.expect_length(vector)
            searching = asyncio.ensure_future(asyncio.to_thread(owner.search, query, vector, now))
            try:
                return await asyncio.shield(searching)
            finally:
                # The lock is not given back while the thread is in the index.
                while not searching.done():
                    await asyncio.wait({searching})

    def run(self, subject: bytes, work: Coroutine[None, None, object]) -> None:
        """Run work in the background, unless such work is running."""
        if subject in self._tasks:
            work.close()
            return
        task = run_in_background(_log_failure(work), "memories")
        self._tasks[subject] = task

        def end(_: asyncio.Task[None]) -> None:
            self._tasks.pop(subject, None)
            # A task that is cancelled before its first step leaves it unawaited.
            work.close()

        task.add_done_callback(end)

    async def wait(self, subject: bytes, seconds: float) -> None:
        """Wait for such work, which goes on when the time is over."""
        if (task := self._tasks.get(subject)) is not None:
            await asyncio.wait({task}, timeout=seconds)

    async def drain(self) -> None:
        """Wait for what runs in the background."""
        while self._tasks or self._loads:
            await asyncio.wait([*self._tasks.values(), *self._loads])

    async def close(self) -> None:
        """End what runs in the background."""
        for task in [*self._tasks.values(), *self._loads]:
            task.cancel()
        await self.drain()

    def clear(self) -> None:
        """Drop all copies."""
        self._owners.clear()

    async def drop(self, scope: Scope) -> None:
        """Drop the copy of an owner, after it is saved."""
        if (task := self._tasks.get(_SAVE + owner_key(scope))) is not None:
            await asyncio.wait({task})
        self._owners.pop(owner_key(scope))

    def contains(self, scope: Scope) -> bool:
        """Whether there is a copy of an owner's memories."""
        return owner_key(scope) in self._owners

    async def _refresh(self, scope: Scope, owner: OwnerMemories) -> bool:
        """Bring a copy up to date; the caller holds its lock. Returns whether it could be done without a load."""
        log, memory_ids = await self._records.changed_since(scope, owner.log)
        if owner.loaded_at is None or memory_ids is None:
            return False
        await self._read_changed(scope, owner, memory_ids)
        owner.log = log
        return True

    async def _join_load(self, scope: Scope, owner: OwnerMemories) -> None:
        """Wait for the load of a copy, which is begun if none is under way; a caller that leaves does not end it."""
        if owner.loading is None:
            owner.loading = asyncio.create_task(self._load_all(scope, owner), name="tenuto load of memories")
            self._loads.add(owner.loading)

            def end(task: asyncio.Task[None]) -> None:
                owner.loading = None
                self._loads.discard(task)
                if not task.cancelled() and (error := task.exception()) is not None:
                    # Each caller that still waits has it raised, too.
                    _log.warning("memories could not be loaded: %s", type(error).__name__)

            owner.loading.add_done_callback(end)
        await asyncio.shield(owner.loading)

    async def _load_all(self, scope: Scope, owner: OwnerMemories) -> None:
        if owner.loaded_at is not None:
            await self._compare(scope, owner)
            return
        log, _ = await self._records.changed_since(scope, MemoryLog())
        fresh = await self._read_stored(scope) or await self._read_all(scope)
        async with owner.lock:
            owner.take(fresh)
            # What changed meanwhile is read by the next refresh.
            owner.log = fresh.log if fresh.log.version else log
            owner.loaded_at = self._clock()
        self._weigh(owner_key(scope), owner)

    def _weigh(self, key: bytes, owner: OwnerMemories) -> None:
        """Count a copy in the bound of all copies as what it holds now, if it is still here."""
        if self._owners.peek(key) is owner:
            self._owners.put(key, owner)

    async def _compare(self, scope: Scope, owner: OwnerMemories) -> None:
        """Compare a copy with the rows, and read what differs, while callers go on with it."""
        log, _ = await self._records.changed_since(scope, MemoryLog())
        different, stored_ids = set[str](), set[str]()
        async for memory in self._records.load_texts(scope):
            stored_ids.add(memory.id)
            lacks_vector = self._records.has_embedder and memory.id not in owner.embedded
            if lacks_vector or owner.memories.get(memory.id) != memory:
                different.add(memory.id)
        async with owner.lock:
            await self._read_changed(scope, owner, [*different, *(owner.memories.keys() - stored_ids)])
            # What changed meanwhile is read by the next refresh.
            owner.log = log

    async def _read_stored(self, scope: Scope) -> OwnerMemories | None:
        """A copy from the stored index and what changed since; `None` if there is none."""
        loaded = await self._stored.load(scope)
        if loaded is None:
            return None
        fresh = OwnerMemories()
        await asyncio.to_thread(fresh.fill_blocks, loaded.blocks)
        fresh.saved = loaded.saved
        log, memory_ids = await self._records.changed_since(
            scope, MemoryLog(epoch=loaded.epoch, version=loaded.log_version)
        )
        if memory_ids is None or not loaded.whole:
            await self._compare(scope, fresh)
        else:
            await self._read_changed(scope, fresh, memory_ids)
            fresh.log = log
        return fresh

    async def _read_all(self, scope: Scope) -> OwnerMemories:
        rows = [one async for one in self._records.load(scope)]
        memories = {one.memory.id: one.memory for one in rows}
        vectors = {one.memory.id: one.vector for one in rows}
        fresh = OwnerMemories()
        if len(rows) <= _AT_ONCE:
            fresh.fill(memories, vectors)
        else:
            await asyncio.to_thread(fresh.fill, memories, vectors)
        return fresh

    async def _read_changed(self, scope: Scope, owner: OwnerMemories, memory_ids: Iterable[str]) -> None:
        unique_ids = list(memory_ids)
        for start in range(0, len(unique_ids), _PAGE):
            some = unique_ids[start : start + _PAGE]
            rows = await self._records.read_all(scope, some)
            for place, (memory_id, stored) in enumerate(zip(some, rows, strict=True), 1):
                if stored is None:
                    owner.remove(memory_id)
                else:
                    owner.put(stored.memory, stored.vector)
                if not place % CHANGES_AT_ONCE:
                    await asyncio.sleep(0)

    async def _save(self, scope: Scope, owner: OwnerMemories) -> None:
        """Store the index of a copy, block by block: callers go on with it in between."""
        key, saved = owner_key(scope), owner.saved
        async with owner.lock:
            if not await self._stored.begin(scope, saved, owner.log.version, owner.memories):
                saved.save_at = len(saved.unsaved) + BLOCK
                return
            retired, gone = saved.retire(), set(saved.gone)
        # A copy that has left, as after an erasure, is not stored.
        while self._owners.peek(key) is owner:
            async with owner.lock:
                if owner.saved is not saved or owner.loaded_at is None:
                    return
                batch = list(islice(saved.unsaved, BLOCK))
                if batch:
                    name = await self._stored.write(scope, await owner.block(batch))
                    saved.blocks[name] = set(batch)
                    saved.unsaved.difference_update(batch)
                    continue
                names = [name for name in saved.blocks if name not in retired]
                if await self._stored.finish(scope, saved, names, (owner.log.epoch, owner.log.version)):
                    for name in retired:
                        del saved.blocks[name]
                    saved.gone -= gone
                    saved.save_at = BLOCK
                else:
                    saved.reset(owner.memories)
                    saved.save_at = len(saved.unsaved) + BLOCK
                break
        # Of what was forgotten meanwhile by another process nothing may remain, nor of an owner that was erased.
        _, changed_ids = await self._records.changed_since(scope, owner.log)
        if changed_ids is None:
            await self._stored.drop(scope)
        elif changed_ids:
            async with self.current(scope):
                await self.forget_stored(scope, owner, set(saved.gone))


async def _log_failure(work: Coroutine[None, None, object]) -> None:
    try:
        await work
    except Exception as error:
        # What it complains of may quote a text.
        _log.warning("work on memories was postponed: %s", type(error).__name__)


class OwnerMemories:
    """The memories of one owner in this process. No two states of any of them have the same `revision`."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.log = MemoryLog()
        self.loaded_at: datetime | None = None
        self.loading: asyncio.Task[None] | None = None
        self._index: MemoryIndex | None = None
        self.fill({}, {})

    def nbytes(self) -> int:
        """What the copy takes in memory, about."""
        index = 0 if self._index is None else self._index.nbytes()
        return _OWNER_BYTES + _MEMORY_BYTES * len(self.memories) + self._text_bytes + index

    def has_any_but(self, session_id: str | None) -> bool:
        """Whether there are memories of other sessions than this one, or of none."""
        return any(one.session_id != session_id for one in self.memories.values())

    def fill(self, memories: dict[str, Memory], vectors: Mapping[str, Vector | None]) -> None:
        """Take these in place of all others; of vectors of several lengths, the most frequent count."""
        lengths = Counter(len(vector) for vector in vectors.values() if vector is not None)
        length = max(lengths, key=lengths.__getitem__, default=0)
        fitting = {name: one for name, one in vectors.items() if one is not None and len(one) == length}
        self.fill_blocks([_make_block(memories.values(), fitting)] if memories else [])
        self._length, self.embedded = length, set(fitting)

    def fill_blocks(self, blocks: Sequence[IndexBlock]) -> None:
        """Take the memories of blocks in place of all others."""
        self.revision = next(_revisions)
        self._length = max((block.dimension for block in blocks), default=0)
        self.memories = {memory.id: memory for block in blocks for memory in block.memories}
        self.embedded = {memory_id for block in blocks for memory_id in block.embedded_ids()}
        self.saved = SavedBlocks()
        self.saved.unsaved.update(self.memories)
        self.preferences: dict[str, Memory] = {}
        self._by_text: dict[int, str] = {}
        self._text_bytes = 0
        self._index = _index_of(blocks) if self.memories else None
        for memory in self.memories.values():
            self._note(memory)

    async def block(self, memory_ids: Iterable[str]) -> IndexBlock:
        """Some of the memories as a block; the caller holds the lock."""
        index = self._index or _index_of(())
        chosen = [one for one in memory_ids if one in self.memories]
        return await asyncio.to_thread(index.block, chosen)

    def take(self, other: OwnerMemories) -> None:
        """Take the content of another copy in place of all there is."""
        self.memories, self.embedded, self.preferences = other.memories, other.embedded, other.preferences
        self.revision = next(_revisions)
        self._index, self._length, self.saved = other._index, other._length, other.saved
        self._by_text, self._text_bytes = other._by_text, other._text_bytes

    def put(self, memory: Memory, vector: Vector | None) -> None:
        """Add a memory, or replace the one of the same id. Without a vector, that of the same text is kept."""
        self.expect_length(vector)
        self.revision = next(_revisions)
        old = self.memories.get(memory.id)
        if old is not None:
            self._unnote(old)
            if old.text != memory.text:
                self.saved.remove(memory.id)
        if vector is not None:
            self.embedded.add(memory.id)
            self._length = len(vector)
        elif old is None or old.text != memory.text:
            self.embedded.discard(memory.id)
        self.memories[memory.id] = memory
        self.saved.unsaved.add(memory.id)
        if self._index is None:
            self._index = _index_of(())
        self._index.put(memory, vector)
        self._note(memory)

    def remove(self, memory_id: str) -> None:
        """Remove a memory, if it is there."""
        memory = self.memories.pop(memory_id, None)
        if memory is not None and self._index is not None:
            self.revision = next(_revisions)
            self.embedded.discard(memory_id)
            self.saved.remove(memory_id)
            self._index.remove(memory_id)
            self._unnote(memory)

    def expect_length(self, vector: Vector | None) -> None:
        """Drop all vectors if the embedder's have another length now: it is another model under the same name."""
        if vector is not None and self.embedded and len(vector) != self._length:
            self.fill(self.memories, {})

    def search(self, query: MemoryQuery, vector: Vector | None, now: datetime) -> tuple[MemoryHit, ...]:
        """The best memories for a query, best first."""
        if self._index is None:
            return ()
        # As `_index_of` says.
        from tenuto.recall.index_search import search_index

        return search_index(self._index, query, vector, now)

    def vector(self, memory_id: str) -> Vector | None:
        """The vector of a memory, if it has one."""
        steps = None if self._index is None else self._index.vector(memory_id)
        return None if steps is None else array("b", steps.tobytes())

    def holding_texts(self) -> Mapping[int, str]:
        """The ids of the memories that hold, by what two of them have in common that say the same, in this process."""
        return self._by_text

    def same_text(self, memory: Memory) -> Memory | None:
        """The memory that holds and says the same, letter for letter."""
        same = self.memories.get(self._by_text.get(hash(_identity(memory)), ""))
        return same if same is not None and _identity(same) == _identity(memory) else None

    def replaced_by(self, memory: Memory) -> list[Memory]:
        """The memories that hold now and that this one takes the place of; none that was said with it."""
        replaced: list[Memory] = []
        about = terms(memory.text)
        if memory.kind is not MemoryKind.EPISODE and len(about) >= _SAME_TERMS and self._index is not None:
            replaced += [one for one in self._index.same_terms(memory.text) if terms(one.text) == about]
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
        self._text_bytes -= getsizeof(memory.text)
        self.preferences.pop(memory.id, None)
        key = hash(_identity(memory))
        if self._by_text.get(key) == memory.id:
            del self._by_text[key]

    def _note(self, memory: Memory) -> None:
        self._text_bytes += getsizeof(memory.text)
        if not memory.superseded_by:
            if memory.kind is MemoryKind.PREFERENCE:
                self.preferences[memory.id] = memory
            self._by_text[hash(_identity(memory))] = memory.id


def _index_of(blocks: Sequence[IndexBlock]) -> MemoryIndex:
    # It imports numpy, which takes a tenth of a second: not for a user of whom nothing is remembered.
    from tenuto.recall.index import MemoryIndex

    return MemoryIndex.of_blocks(blocks)


def _make_block(memories: Iterable[Memory], vectors: Mapping[str, Vector]) -> IndexBlock:
    from tenuto.recall.blocks import make_block

    return make_block(memories, vectors)


def is_expired(memory: Memory, now: datetime) -> bool:
    """Whether a memory does not exist any more."""
    return memory.expires_at is not None and memory.expires_at <= now


def normal_text(text: str) -> str:
    """A text as it is compared: letter for letter, but for case, spaces and the last full stop."""
    return " ".join(text.casefold().split()).rstrip(".!。！ ")


def _identity(memory: Memory) -> _Identity:
    return normal_text(memory.text), memory.kind, memory.speaker, memory.persona
