"""The copies of owners' memories in this process: loaded once, kept current by the log of changes, bounded.

A copy is filled in a thread, so that no other user waits for it. A caller that changes a copy holds its lock; a thread
that searches it is waited for even when its caller is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from tenuto.background import run_in_background
from tenuto.lru_cache import LruCache
from tenuto.model import Scope
from tenuto.model.memory import MemoryHit, MemoryQuery
from tenuto.model.scope import owner_key
from tenuto.ports import Clock
from tenuto.recall.embedding import Vector
from tenuto.recall.owner import OwnerMemories
from tenuto.recall.records import MemoryLog, MemoryRecords

# Copies hold so many memories in all; the least recently used leave first. An owner without any counts as one.
_MOST_MEMORIES: Final = 50_000
# A copy is loaded anew after this time: a process may die between a change and its entry in the log.
_LIFE: Final = timedelta(minutes=10)
# A larger copy is filled and searched in a thread.
_AT_ONCE: Final = 500
_log = logging.getLogger(__name__)


class OwnerCache:
    """The copies, and what runs in the background for them."""

    def __init__(self, records: MemoryRecords, clock: Clock) -> None:
        self._records = records
        self._clock = clock
        self._owners = LruCache[bytes, OwnerMemories](
            _MOST_MEMORIES, most_weight=_MOST_MEMORIES, weigh=lambda owner: owner.weight
        )
        self._tasks: dict[bytes, asyncio.Task[None]] = {}

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
            async with owner.lock:
                await self._refresh(scope, owner)
                yield owner
            now = self._clock()
            if owner.loaded_at is not None and now - owner.loaded_at > _LIFE:
                owner.loaded_at = now
                self.run(b"reload" + key, self._reload(scope, owner))
        finally:
            # Also of a copy that could not be loaded: in an outage, every user who asks would leave one behind.
            if self._owners.peek(key) is owner:
                self._owners.put(key, owner)

    async def announce(
        self, scope: Scope, owner: OwnerMemories, memory_ids: Sequence[str], progress: tuple[str, int] | None = None
    ) -> None:
        """Tell other processes of changes that this copy has; the caller holds its lock."""
        log = await self._records.log_change(scope, owner.log, memory_ids, progress)
        # With a change of another process in between, the next load reads both.
        if owner.log.is_continued_by(log):
            owner.log = log

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
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    async def close(self) -> None:
        """End what runs in the background."""
        for task in list(self._tasks.values()):
            task.cancel()
        await self.drain()

    def clear(self) -> None:
        """Drop all copies."""
        self._owners.clear()

    def drop(self, scope: Scope) -> None:
        """Drop the copy of an owner."""
        self._owners.pop(owner_key(scope))

    def contains(self, scope: Scope) -> bool:
        """Whether there is a copy of an owner's memories."""
        return owner_key(scope) in self._owners

    async def _refresh(self, scope: Scope, owner: OwnerMemories) -> None:
        """Bring a copy up to date; the caller holds its lock."""
        log, memory_ids = await self._records.changed_since(scope, owner.log)
        if owner.loaded_at is None or memory_ids is None:
            owner.take(await self._read_all(scope))
            owner.loaded_at = self._clock()
        else:
            await self._read_changed(scope, owner, memory_ids)
        owner.log = log

    async def _reload(self, scope: Scope, owner: OwnerMemories) -> None:
        """Replace the content of a copy while callers go on with the old one."""
        log, _ = await self._records.changed_since(scope, MemoryLog())
        fresh = await self._read_all(scope)
        async with owner.lock:
            # What changed meanwhile is read by the next load.
            if (owner.log.epoch, owner.log.version) == (log.epoch, log.version):
                owner.take(fresh)

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
        for memory_id, stored in zip(
            unique_ids, await asyncio.gather(*(self._records.read(scope, one) for one in unique_ids)), strict=True
        ):
            if stored is None:
                owner.remove(memory_id)
            else:
                owner.put(stored.memory, stored.vector)


async def _log_failure(work: Coroutine[None, None, object]) -> None:
    try:
        await work
    except Exception as error:
        # What it complains of may quote a text.
        _log.warning("work on memories was postponed: %s", type(error).__name__)
