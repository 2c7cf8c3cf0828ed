"""Memories of users and chats: remember, search, edit, forget.

The memories of an owner are searched in this process, in an index that is loaded once and kept current by the log of
changes. Texts are redacted before they are embedded or stored.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableSequence, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, TypeAlias

from msgspec.structs import replace

from tenuto.errors import Conflict, Invalid, InvalidCursor, MemoryNotFound
from tenuto.model import Scope
from tenuto.model.memory import (
    MAX_MEMORY,
    MAX_SUBJECT,
    Memory,
    MemoryHit,
    MemoryKind,
    MemoryPolicy,
    MemoryQuery,
    MemorySource,
)
from tenuto.model.scope import owner_key, owner_scope
from tenuto.model.values import check_id, check_int, check_text, check_type
from tenuto.ports import Clock, StateStore
from tenuto.recall.embedding import CachedEmbedder, Vector
from tenuto.recall.owner import OwnerMemories, is_expired
from tenuto.recall.records import LogMark, MemoryRecords

Redact: TypeAlias = Callable[[Scope, str], Awaitable[str | None]]
"""A text as it may be remembered; `None` if it may not be."""

DEGRADED: Final = "recall"
MAX_PAGE: Final = 500
"""Memories in one part of a listing."""
# Indexes in this process hold so many memories in all; the least recently used leave first.
_KEPT: Final = 50_000
# A copy is loaded anew after this time: a process may die between a change and its entry in the log.
_LIFE: Final = timedelta(minutes=10)
# A larger index is searched in a thread.
_SEARCHED_AT_ONCE: Final = 3_000
_TRIES: Final = 5
_REFUSED: Final = "this text may not be remembered under the privacy policy"
_log = logging.getLogger(__name__)


class Memories:
    """The memories of every owner. Callers check permissions; each method acts on the owner of its scope."""

    def __init__(
        self,
        *,
        state: StateStore,
        redact: Redact,
        clock: Clock,
        policy: MemoryPolicy,
        new_id: Callable[[], str],
        embedder: CachedEmbedder | None = None,
    ) -> None:
        self.policy = policy
        self.embedder = embedder
        self._records = MemoryRecords(state, embedder.name if embedder is not None else "", new_id)
        self._redact = redact
        self._clock = clock
        self._new_id = new_id
        self._owners: OrderedDict[bytes, OwnerMemories] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[bytes] = set()

    # Reading

    async def search(self, scope: Scope, query: MemoryQuery) -> RecallResult:
        """The memories that fit a query best, best first.

        Without its embedder the search goes by words alone, and the result says so.
        """
        check_type(query, MemoryQuery, "the query")
        prepared = await self.prepare(scope, query.text)
        return await prepared.search(query)

    async def prepare(self, scope: Scope, text: str) -> PreparedSearch:
        """What can be done for a search before the conversation is known: load the memories, embed the question."""
        scope = _owned(scope)
        owner = await self._load(scope)
        vectors: list[Vector] | None = None
        missed = False
        if self.embedder is not None and owner.memories and text.strip():
            if not self.embedder.ready:
                self._warm()
                return PreparedSearch(owner, None, self._clock, degraded=True)
            asked = await self._redact(scope, text) if self.embedder.remote else text
            vectors = await self.embedder.embed(scope, [asked or ""])
            missed = vectors is None
        return PreparedSearch(owner, vectors[0] if vectors else None, self._clock, degraded=missed)

    async def get(self, scope: Scope, memory_id: str) -> Memory:
        """One memory.

        Raises:
            MemoryNotFound: the owner has none of that id.
        """
        stored = await self._records.read(_owned(scope), check_id(memory_id, "the memory id"))
        if stored is None or is_expired(stored.memory, self._clock()):
            raise MemoryNotFound(memory_id)
        return stored.memory

    async def list(
        self,
        scope: Scope,
        *,
        kinds: Sequence[MemoryKind] = (),
        session_id: str = "",
        superseded: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[Memory, ...]:
        """Memories, those that were said last first; `next_cursor` of them continues the listing.

        Raises:
            InvalidCursor: the cursor is none of a listing of memories.
        """
        check_int(limit, 1, MAX_PAGE, "limit")
        behind = _parse_cursor(cursor) if cursor is not None else None
        owner = await self._load(_owned(scope))
        now = self._clock()
        found = [
            memory
            for memory in owner.memories.values()
            if (not kinds or memory.kind in kinds)
            and (not session_id or memory.session_id == session_id)
            and (superseded or not memory.superseded_by)
            and not is_expired(memory, now)
            and (behind is None or (memory.said_at, memory.id) < behind)
        ]
        found.sort(key=lambda memory: (memory.said_at, memory.id), reverse=True)
        return tuple(found[:limit])

    async def preferences(self, scope: Scope) -> tuple[Memory, ...]:
        """The preferences that hold, the oldest first."""
        return tuple(reversed(await self.list(scope, kinds=(MemoryKind.PREFERENCE,), limit=MAX_PAGE)))

    # Writing

    async def add(
        self,
        scope: Scope,
        text: str,
        *,
        kind: MemoryKind = MemoryKind.FACT,
        subject: str = "",
        said_at: datetime | None = None,
        expires_at: datetime | None = None,
    ) -> Memory:
        """Remember a text as it is. One that is remembered already is counted, not stored again.

        Raises:
            Invalid: it is empty, too long, or may not be remembered under the privacy policy; or nothing is remembered
                at all.
        """
        kept = await self.remember(scope, (self._written(text, kind, subject, said_at, expires_at),))
        if not kept:
            raise Invalid(_REFUSED)
        return kept[0]

    async def set_preferences(self, scope: Scope, texts: Sequence[str]) -> tuple[Memory, ...]:
        """Have exactly these preferences: those that hold already stay as they are, others are added or removed.

        Raises:
            Invalid: as `add` says; then nothing was removed.
        """
        held = {one.text: one for one in await self.preferences(scope)}
        new = [self._written(text, MemoryKind.PREFERENCE) for text in dict.fromkeys(texts) if text not in held]
        kept = await self.remember(scope, new)
        if len(kept) < len(new):
            raise Invalid(_REFUSED)
        # Compared by id: what was added may have been redacted into one that holds already.
        wanted = {held[text].id for text in texts if text in held} | {one.id for one in kept}
        gone = [one.id for one in held.values() if one.id not in wanted]
        if gone:
            await self.forget(scope, gone)
        return await self.preferences(scope)

    def _written(
        self,
        text: str,
        kind: MemoryKind,
        subject: str = "",
        said_at: datetime | None = None,
        expires_at: datetime | None = None,
    ) -> Memory:
        """A memory that is written by hand."""
        if not self.policy.enabled:
            raise Invalid("nothing is remembered here: the setting memories is off")
        return Memory(
            id=self._new_id(),
            kind=MemoryKind(kind),
            text=text,
            said_at=said_at or self._clock(),
            subject=_normal_subject(subject),
            expires_at=expires_at,
        )

    async def remember(self, scope: Scope, memories: Iterable[Memory]) -> tuple[Memory, ...]:
        """Store memories as captured; returns what stands for them.

        A memory whose id is stored already was captured by another process. A text that is remembered counts one more
        mention. One of the same subject, or of the same terms, takes the place of the earlier one, which stays with its
        validity.
        """
        scope = _owned(scope)
        kept: list[Memory] = []
        changed: MutableSequence[str] = []
        owner = await self._load(scope)
        async with owner.lock:
            clean = [one for memory in memories if (one := await self._clean(scope, memory)) is not None]
            vectors = await self._embed(scope, [memory.text for memory in clean])
            for memory, vector in zip(clean, vectors, strict=True):
                kept.append(await self._merge(scope, owner, memory, vector, changed))
            if changed:
                await self._trim(scope, owner, changed)
                await self._announce(scope, owner, changed)
        return tuple(kept)

    async def edit(
        self, scope: Scope, memory_id: str, *, text: str | None = None, kind: MemoryKind | None = None
    ) -> Memory:
        """Change the text or the kind of a memory. A changed text is no quotation any more, and counts as written.

        Raises:
            MemoryNotFound: the owner has none of that id.
            Invalid: the text is empty, too long, or may not be remembered.
            Conflict: another process changes it at the same time.
        """
        scope = _owned(scope)
        owner = await self._load(scope)
        async with owner.lock:
            for _ in range(_TRIES):
                stored = await self._records.read(scope, check_id(memory_id, "the memory id"))
                if stored is None or is_expired(stored.memory, self._clock()):
                    raise MemoryNotFound(memory_id)
                clean = await self._clean(scope, _edited(stored.memory, text, kind))
                if clean is None:
                    raise Invalid(_REFUSED)
                (vector,) = await self._embed(scope, [clean.text])
                written = await self._records.write(scope, clean, stored.version)
                if written is not None:
                    if clean.text != stored.memory.text:
                        await self._records.write_vector(scope, memory_id, vector)
                    owner.put(written, vector)
                    await self._announce(scope, owner, [memory_id])
                    return written
        raise Conflict("the memory is being changed by others; try again")

    async def forget(
        self,
        scope: Scope,
        memory_ids: Sequence[str] = (),
        *,
        session_id: str = "",
        everything: bool = False,
        dry_run: bool = False,
    ) -> int:
        """Remove memories by their ids, of a session, or all of the owner; returns how many there were.

        What superseded or was superseded by them stays. In a `dry_run` they stay as well.
        """
        scope = _owned(scope)
        owner = await self._load(scope)
        async with owner.lock:
            ids = [check_id(one, "the memory id") for one in memory_ids]
            if session_id or everything:
                ids += [one.id for one in owner.memories.values() if everything or one.session_id == session_id]
            unique = list(dict.fromkeys(ids))
            if dry_run:
                return len([one for one in unique if one in owner.memories])
            return await self._remove(scope, owner, unique)

    async def index_missing(self, scope: Scope) -> int:
        """Remove expired memories and embed those without a vector of this embedder; returns how many were embedded.

        So memories that were stored while the embedder was away, or with another embedder, are found by meaning again.
        """
        scope = _owned(scope)
        owner = await self._load(scope)
        async with owner.lock:
            now = self._clock()
            await self._remove(scope, owner, [one.id for one in owner.memories.values() if is_expired(one, now)])
            done = 0
            missing = [memory_id for memory_id in owner.memories if memory_id not in owner.embedded]
            if missing and self.embedder is not None and not self.embedder.ready:
                await self.embedder.warm()
            for start in range(0, len(missing) if self.embedder is not None else 0, 64):
                batch = [owner.memories[memory_id] for memory_id in missing[start : start + 64]]
                vectors = await self._embed(scope, [memory.text for memory in batch])
                for memory, vector in zip(batch, vectors, strict=True):
                    if vector is None:
                        return done
                    await self._records.write_vector(scope, memory.id, vector)
                    owner.put(memory, vector)
                    done += 1
                await self._announce(scope, owner, [memory.id for memory in batch])
            return done

    async def drain(self) -> None:
        """Wait until vectors that are being added in the background are stored."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """End what runs in the background: vectors that are missing then are added in another process."""
        for task in self._tasks:
            task.cancel()
        await self.drain()

    def clear_cache(self) -> None:
        """Drop what this process holds of memories, as after the erasure of a user."""
        self._owners.clear()
        if self.embedder is not None:
            self.embedder.clear_cache()

    # The copy in this process

    async def _load(self, scope: Scope) -> OwnerMemories:
        """The owner's memories as they are stored now."""
        key = owner_key(scope)
        owner = self._owners.get(key)
        if owner is None:
            owner = self._owners[key] = OwnerMemories()
        self._owners.move_to_end(key)
        async with owner.lock:
            mark, changed = await self._records.changed_since(scope, owner.mark)
            now = self._clock()
            if owner.loaded_at is None or changed is None or now - owner.loaded_at > _LIFE:
                await self._load_all(scope, owner, mark, now)
            else:
                await self._load_changed(scope, owner, mark, changed)
        self._evict()
        if self.embedder is not None and self.embedder.ready and len(owner.embedded) < len(owner.memories):
            self._run(key, self.index_missing(scope))
        return owner

    def _warm(self) -> None:
        """Have the embedder load its weights, and then embed what was stored meanwhile."""
        if self.embedder is not None:
            self._run(b"", self.embedder.warm())

    def _run(self, subject: bytes, work: Coroutine[None, None, object]) -> None:
        """Run work in the background, unless the same is running."""
        if subject in self._running:
            work.close()
            return
        task = asyncio.create_task(_log_failure(work), name="tenuto memory vectors")
        self._running.add(subject)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._running.discard(subject))

    async def _load_all(self, scope: Scope, owner: OwnerMemories, mark: LogMark, now: datetime) -> None:
        # The mark was read before the rows: what changes meanwhile is read again.
        stored = [one async for one in self._records.load(scope)] if mark.version else []
        owner.fill({one.memory.id: one.memory for one in stored}, {one.memory.id: one.vector for one in stored})
        owner.mark, owner.loaded_at = mark, now

    async def _load_changed(self, scope: Scope, owner: OwnerMemories, mark: LogMark, changed: Iterable[str]) -> None:
        for memory_id in changed:
            stored = await self._records.read(scope, memory_id)
            if stored is None:
                owner.remove(memory_id)
            else:
                owner.put(stored.memory, stored.vector)
        owner.mark = mark

    def _evict(self) -> None:
        held = sum(len(owner.memories) for owner in self._owners.values())
        while held > _KEPT and len(self._owners) > 1:
            held -= len(self._owners.popitem(last=False)[1].memories)

    async def _announce(self, scope: Scope, owner: OwnerMemories, changed: Sequence[str]) -> None:
        mark = await self._records.log_change(scope, changed)
        # With a change of another process in between, the next load reads both.
        if mark.version == owner.mark.version + 1 and owner.mark.epoch in ("", mark.epoch):
            owner.mark = mark

    # One memory at a time

    async def _clean(self, scope: Scope, memory: Memory) -> Memory | None:
        """The memory as it may be stored, with its expiry; `None` if the policy forbids it."""
        text = await self._redact(scope, memory.text)
        if text is None or not text.strip():
            return None
        life = self.policy.life_of(memory.kind)
        expires = memory.expires_at or (memory.said_at + life if life is not None else None)
        return replace(memory, text=text[:MAX_MEMORY], expires_at=expires)

    async def _embed(self, scope: Scope, texts: Sequence[str]) -> Sequence[Vector | None]:
        """The vectors of texts; those that cannot be had now are added later, by `index_missing`."""
        if self.embedder is None or not texts:
            return [None] * len(texts)
        if not self.embedder.ready:
            self._warm()
            return [None] * len(texts)
        return await self.embedder.embed(scope, texts) or [None] * len(texts)

    async def _merge(
        self, scope: Scope, owner: OwnerMemories, memory: Memory, vector: Vector | None, changed: MutableSequence[str]
    ) -> Memory:
        if memory.id in owner.memories:
            return owner.memories[memory.id]
        same = owner.same_text(memory)
        if same is not None:
            said = max(same.said_at, memory.said_at)
            again = replace(same, mentions=same.mentions + 1, said_at=said, expires_at=memory.expires_at)
            return await self._rewrite(scope, owner, again, changed)
        earlier = [one for one in owner.replaced_by(memory) if one.said_at <= memory.said_at]
        written = await self._records.write(scope, memory, 0)
        if written is None:
            # Another process has captured it in this moment.
            return memory
        if vector is not None:
            await self._records.write_vector(scope, memory.id, vector)
        owner.put(written, vector)
        changed.append(written.id)
        for one in earlier:
            over = replace(one, valid_until=memory.said_at, superseded_by=memory.id)
            await self._rewrite(scope, owner, over, changed)
        return written

    async def _rewrite(
        self, scope: Scope, owner: OwnerMemories, memory: Memory, changed: MutableSequence[str]
    ) -> Memory:
        """Store a changed memory; its text and so its vector stay."""
        written = await self._records.write(scope, memory, None)
        assert written is not None, "without a version there is no conflict"
        owner.put(written, None)
        changed.append(memory.id)
        return written

    async def _trim(self, scope: Scope, owner: OwnerMemories, changed: MutableSequence[str]) -> None:
        """Remove the oldest memories above the limit of an owner; preferences stay."""
        over = len(owner.memories) - self.policy.max_memories
        if over > 0:
            oldest = sorted(
                (one for one in owner.memories.values() if one.kind is not MemoryKind.PREFERENCE),
                key=lambda one: (not one.superseded_by, one.said_at, one.id),
            )
            gone = [one.id for one in oldest[:over]]
            await self._records.remove(scope, gone)
            for memory_id in gone:
                owner.remove(memory_id)
            changed.extend(gone)

    async def _remove(self, scope: Scope, owner: OwnerMemories, memory_ids: Sequence[str]) -> int:
        if not memory_ids:
            return 0
        gone = await self._records.remove(scope, memory_ids)
        for memory_id in memory_ids:
            owner.remove(memory_id)
        await self._announce(scope, owner, memory_ids)
        return gone


class RecallResult:
    """What a search found; `degraded` if the embedder did not answer and words alone decided."""

    __slots__ = ("degraded", "hits")

    def __init__(self, hits: tuple[MemoryHit, ...], *, degraded: bool) -> None:
        self.hits = hits
        self.degraded = degraded


class PreparedSearch:
    """The memories of an owner and the vector of a question, for one search."""

    def __init__(self, owner: OwnerMemories, vector: Vector | None, clock: Clock, *, degraded: bool) -> None:
        self._owner = owner
        self._vector = vector
        self._clock = clock
        self._degraded = degraded

    @property
    def preferences(self) -> list[Memory]:
        """The preferences that hold, the oldest first."""
        now = self._clock()
        liked = [one for one in self._owner.preferences.values() if not is_expired(one, now)]
        return sorted(liked, key=lambda one: (one.said_at, one.id))

    async def search(self, query: MemoryQuery) -> RecallResult:
        """Search by the prepared vector and by words."""
        owner = self._owner
        owner.expect_length(self._vector)
        if not owner.memories:
            return RecallResult((), degraded=self._degraded)
        if len(owner.memories) <= _SEARCHED_AT_ONCE:
            hits = owner.search(query, self._vector, self._clock())
        else:
            async with owner.lock:
                hits = await asyncio.to_thread(owner.search, query, self._vector, self._clock())
        return RecallResult(hits, degraded=self._degraded)


async def _log_failure(work: Coroutine[None, None, object]) -> None:
    try:
        await work
    except Exception as failed:
        # What it complains of may quote a text.
        _log.warning("vectors of memories were put off: %s", type(failed).__name__)


def next_cursor(found: Sequence[Memory], limit: int) -> str | None:
    """The cursor behind a part of a listing that had room for `limit`; `None` at its end."""
    if len(found) < limit:
        return None
    return urlsafe_b64encode(f"{found[-1].said_at.isoformat()} {found[-1].id}".encode()).decode()


def _parse_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        said_at, _, memory_id = urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        place = datetime.fromisoformat(said_at), memory_id
    except ValueError:
        raise InvalidCursor from None
    if place[0].tzinfo is None:
        raise InvalidCursor
    return place


def captured_id(*facts: str) -> str:
    """The id of a memory that is captured from these facts: two processes that capture the same make one memory."""
    return sha256("\0".join(facts).encode(errors="surrogatepass")).hexdigest()[:32]


def _edited(memory: Memory, text: str | None, kind: MemoryKind | None) -> Memory:
    if text is not None and text != memory.text:
        memory = replace(memory, text=text, source=MemorySource.WRITTEN)
    if kind is not None and kind != memory.kind:
        # Each kind has its own expiry.
        memory = replace(memory, kind=MemoryKind(kind), expires_at=None)
    return memory


def _normal_subject(subject: str) -> str:
    """A subject as it is compared: notes on the same thing take each other's place, however it is spelled."""
    subject = " ".join(check_text(subject, "the subject").casefold().split())
    if len(subject) > MAX_SUBJECT:
        raise Invalid(f"a subject has at most {MAX_SUBJECT} characters, not {len(subject)}")
    return subject


def _owned(scope: Scope) -> Scope:
    check_type(scope, Scope, "scope")
    if scope.visitor:
        raise Invalid("visitors have no memories: name a user or a chat")
    return owner_scope(scope)
