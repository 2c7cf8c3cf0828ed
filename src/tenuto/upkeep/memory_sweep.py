"""Upkeep of memories: expired ones leave, those without a vector of the present embedder get one, and what was said and
which stretches became stale is captured that no process has captured since. With an erased person go those of their
chats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from datetime import timedelta
from typing import Final, NamedTuple

from tenuto.errors import DecryptionFailed, MasterKeyMissing
from tenuto.model import Scope, StateLocation
from tenuto.model.memory import MEMORIES, MEMORY_CHANGES, STALE_STRETCHES
from tenuto.model.scope import site_scope, speaker_tag
from tenuto.ports import Clock, Store
from tenuto.recall.records import MemoryRecords
from tenuto.recall.service import Memories
from tenuto.upkeep.scheduled_scan import claim_round

_PLACE: Final = ("memory.sweep", "began")
_EVERY: Final = timedelta(days=1)
_PAGE: Final = 500
_log = logging.getLogger(__name__)


class SweepProgress(NamedTuple):
    """How many users and chats have been looked at, and how many of their memories were embedded."""

    owners: int
    embedded: int


class MemorySweep:
    """Goes through all memories once a day, in one process of an installation."""

    def __init__(
        self,
        *,
        memories: Memories,
        store: Store,
        clock: Clock,
        capture_stale: Callable[[Scope], Awaitable[None]] | None = None,
    ) -> None:
        self._memories = memories
        self._capture_stale = capture_stale
        self._store = store
        self._clock = clock

    async def sweep_if_due(self) -> None:
        """Sweep, unless a process began a sweep less than a day ago."""
        if not await claim_round(self._store.state, _PLACE, self._clock(), _EVERY):
            return
        progress = SweepProgress(0, 0)
        async for progress in self.sweep():  # noqa: B007
            await asyncio.sleep(0)  # An embedded store yields to no other task in between.
        if progress.owners:
            _log.info("swept the memories of %d users and chats; %d memories embedded", *progress)

    async def sweep(self) -> AsyncIterator[SweepProgress]:
        """Go through the memories of every user and chat; yields after each of them."""
        owners = embedded = 0
        last: Scope | None = None
        while sites := await self._store.upkeep.list_sites(last, _PAGE):
            for last in sites:
                async for owner in self._owners(last):
                    try:
                        if self._capture_stale is not None:
                            await self._capture_stale(owner)
                        embedded += await self._memories.sweep_owner(owner)
                    except Exception as error:
                        # The others are swept whatever fails with one.
                        _log.warning("the memories of an owner were not swept: %s", type(error).__name__)
                    owners += 1
                    yield SweepProgress(owners, embedded)

    async def _owners(self, site: Scope) -> AsyncIterator[Scope]:
        if self._memories.policy.without_user:
            yield site
        # The log of changes alone may be there: it marks what is to be captured first.
        async for owner in memory_owners(self._store, site, (MEMORIES, MEMORY_CHANGES, STALE_STRETCHES)):
            yield owner


async def memory_owners(store: Store, site: Scope, namespaces: Container[str] = (MEMORIES,)) -> AsyncIterator[Scope]:
    """The users and chats of a site that have memories, or other values of these namespaces."""
    after: StateLocation | None = None
    owner: Scope | None = None
    while page := await store.state.list_state_locations(site, after, _PAGE):
        for after in page:
            if after.namespace in namespaces and after.scope != owner:
                owner = after.scope
                yield owner
        if len(page) < _PAGE:
            return


async def erase_chat_memories(store: Store, person: Scope, new_id: Callable[[], str]) -> dict[str, int]:
    """Remove what the person said from the memories of all chats of their site; returns counts of what was removed.

    The person's own memories are their state, which the store erases itself. The embedder is not needed for this: an
    erasure must not fail for a model that cannot be had.
    """
    records = MemoryRecords(store.state, "", new_id)
    chats = [owner async for owner in memory_owners(store, site_scope(person)) if owner.chat is not None]
    counts, tag = {"chat_memories": 0}, speaker_tag(person.tenant, person.user or "")
    for chat in chats:
        try:
            own = [one.memory.id async for one in records.load(chat) if tag in one.memory.speaker.split()]
        except MasterKeyMissing:
            raise
        except DecryptionFailed:
            _log.warning("the memories of a chat were skipped: they do not decrypt")
            counts["unreadable"] = counts.get("unreadable", 0) + 1
            continue
        if own:
            counts["chat_memories"] += await records.remove(chat, own)
            await records.restart_log(chat)
    return counts
