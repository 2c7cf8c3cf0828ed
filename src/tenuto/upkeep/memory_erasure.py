"""What a chat remembers of one of its members, removed when that person is erased."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tenuto.errors import DecryptionFailed, MasterKeyMissing
from tenuto.model import Scope
from tenuto.model.scope import site_scope, speaker_tag
from tenuto.ports import Store
from tenuto.recall.records import MemoryRecords
from tenuto.upkeep.memory_sweep import memory_owners

_log = logging.getLogger(__name__)


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
