"""Memories of users and chats: remember, search, edit, forget.

The memories of an owner are searched in this process, in an index that is loaded once and kept current by the log of
changes. Texts are redacted before they are embedded or stored.
"""

from __future__ import annotations

import logging
from asyncio import gather, get_running_loop, sleep, timeout
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, MutableSequence, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from heapq import nsmallest
from typing import Final

from msgspec.structs import replace

from tenuto.errors import Conflict, Invalid, MemoryNotFound, TenutoError, Unavailable
from tenuto.model import Scope
from tenuto.model.memory import MAX_MEMORY, MAX_SUBJECT, Memory, MemoryKind, MemoryPolicy, MemoryQuery, MemorySource
from tenuto.model.scope import owner_scope
from tenuto.model.values import check_id, check_int, check_text, check_type
from tenuto.ports import Clock, OwnersOf, StateStore, owner_alone
from tenuto.recall.cursors import parse_cursor
from tenuto.recall.embedding import CachedEmbedder
from tenuto.recall.memory_vectors import MemoryVectors, Redact
from tenuto.recall.merge import Merge
from tenuto.recall.owner_cache import CHANGES_AT_ONCE, OwnerCache, OwnerMemories, is_expired
from tenuto.recall.person import PersonMemories
from tenuto.recall.prepared_search import PreparedSearch, RecallResult
from tenuto.recall.records import MemoryLog, MemoryRecords, StoredMemory
from tenuto.recall.stale_stretches import StaleStretches
from tenuto.recall.stored_index import StoredIndex
from tenuto.recall.unread_marks import CatchUp, ChangeMarks, Marks, ReadThrough

MAX_PAGE: Final = 500
"""Memories in one part of a listing."""
_TRIES: Final = 5
# How long a search waits for memories and then for weights that are being loaded: less than a turn waits for its
# memories, so that the words still find some where this is not enough.
_LOADING_SECONDS: Final = 1.8
# How long a search waits for what was said a moment ago.
_CATCH_UP_SECONDS: Final = 1.0
# How long the removal of all memories, or of a session's, waits for it: what comes after would be back again.
_FORGETTING_SECONDS: Final = 20.0
_NO_OWNER: Final = (
    "memories belong to a user: name one by X-User-ID over HTTP, by --user at a terminal, by the scope in Python. "
    "Without one a conversation stays in its own session, "
    "unless memories_without_user is set, which is for a server that one person uses"
)
_log = logging.getLogger(__name__)
_REFUSAL: Final = "this text may not be remembered under the privacy policy"


class Memories:
    """The memories of every owner. Callers check permissions; each method acts on the owner of its scope.

    What is remembered is stored with this owner; what is read, edited and forgotten is the person's, whose owners
    `owners_of` tells.
    """

    def __init__(
        self,
        *,
        state: StateStore,
        redact: Redact,
        clock: Clock,
        policy: MemoryPolicy,
        new_id: Callable[[], str],
        embedder: CachedEmbedder | None = None,
        owners_of: OwnersOf = owner_alone,
        open_captures: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.policy = policy
        self.stale = StaleStretches(state)
        self._records = MemoryRecords(state, embedder.name if embedder is not None else "", new_id)
        self._redact = redact
        self._clock = clock
        self._new_id = new_id
        stored = StoredIndex(state, embedder.name if embedder is not None else "", new_id)
        self._cache = OwnerCache(self._records, stored, clock, policy.cache_bytes)
        self.vectors = MemoryVectors(cache=self._cache, records=self._records, redact=redact, embedder=embedder)
        self._person = PersonMemories(owners_of, self._load, policy.cache_bytes)
        # Set by what captures, which `open_captures` opens where no turn has done so.
        self.captures: CatchUp | None = None
        self._open_captures = open_captures

    @property
    def embedder(self) -> CachedEmbedder | None:
        """What makes vectors of texts, if anything does."""
        return self.vectors.embedder

    def now(self) -> datetime:
        """The present moment, as memories count it."""
        return self._clock()

    def check_owner(self, scope: Scope) -> Scope:
        """Return the scope of the owner of memories.

        Raises:
            Invalid: the scope names neither user nor chat, and memories without a user are not allowed.
        """
        owner = _owner_of(scope)
        if not owner.owner and not self.policy.without_user:
            raise Invalid(_NO_OWNER)
        return owner

    # Reading

    async def search(self, scope: Scope, query: MemoryQuery) -> RecallResult:
        """The memories that fit a query best, best first.

        It waits a moment for an embedder that loads. Without its embedder the search goes by words alone, and the
        result says so.
        """
        check_type(query, MemoryQuery, "the query")
        search = await self.prepare(scope, query.text)
        return await search.search(query)

    async def prepare(self, scope: Scope, text: str, session_id: str | None = None) -> PreparedSearch:
        """What can be done for a search before the conversation is known: load the memories, embed the question.

        What was said in other sessions than this one and is not remembered yet is read first. The question is embedded
        where there are memories of other sessions; those of this one may all be in its prompt.
        """
        scope = self.check_owner(scope)
        until = get_running_loop().time() + _LOADING_SECONDS
        owner = await self._person.load(scope)
        embeds = self.embedder is not None and bool(text.strip())
        embed = partial(self.vectors.of_question, scope, owner, text, until) if embeds else None
        search = PreparedSearch(self._cache, owner, embed, self._clock)
        reading = self._catch_up(scope, session_id, _CATCH_UP_SECONDS)
        if owner.has_any_but(session_id):
            search.complete, _ = await gather(reading, search.embed())
        else:
            search.complete = await reading
            if owner.has_any_but(session_id):
                await search.embed()
        return search

    async def get(self, scope: Scope, memory_id: str) -> Memory:
        """One memory.

        Raises:
            MemoryNotFound: the owner has none of that id.
        """
        scope = await self._person.owner_holding(self.check_owner(scope), memory_id)
        row = await self._records.read(scope, check_id(memory_id, "the memory id"))
        if row is None or is_expired(row.memory, self._clock()):
            raise MemoryNotFound
        return await self._person.show(scope, row.memory)

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
        behind = parse_cursor(cursor) if cursor is not None else None
        owner = await self._load_caught_up(self.check_owner(scope), _CATCH_UP_SECONDS)
        now = self._clock()
        memories = [
            memory
            for memory in owner.memories.values()
            if (not kinds or memory.kind in kinds)
            and (not session_id or memory.session_id == session_id)
            and (superseded or not memory.superseded_by)
            and not is_expired(memory, now)
            and (behind is None or (memory.said_at, memory.id) < behind)
        ]
        memories.sort(key=lambda memory: (memory.said_at, memory.id), reverse=True)
        return tuple(memories[:limit])

    async def has_unread(self, scope: Scope) -> bool:
        """Whether something that was said is not read for memories yet, so that lists and searches lack it."""
        owners = await self._person.owners_of(_owner_of(scope))
        captures = self.captures
        return any(self.last_marks(one) or (captures is not None and captures.is_due(one, {}, None)) for one in owners)

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
        stored = await self.remember(scope, (self._make_memory(text, kind, subject, said_at, expires_at),))
        if not stored:
            raise Invalid(_REFUSAL)
        return stored[0]

    async def set_preferences(self, scope: Scope, texts: Sequence[str]) -> tuple[Memory, ...]:
        """Have exactly these preferences: those that hold already stay as they are, others are added or removed.

        Raises:
            Invalid: as `add` says; then nothing was removed.
        """
        current = {one.text: one for one in await self.preferences(scope)}
        new = [self._make_memory(text, MemoryKind.PREFERENCE) for text in dict.fromkeys(texts) if text not in current]
        stored = await self.remember(scope, new)
        if len(stored) < len(new):
            raise Invalid(_REFUSAL)
        # Compared by id: what was added may have been redacted into one that holds already.
        wanted_ids = {current[text].id for text in texts if text in current} | {one.id for one in stored}
        surplus = [one.id for one in current.values() if one.id not in wanted_ids]
        if surplus:
            await self.forget(scope, surplus)
        return await self.preferences(scope)

    def _make_memory(
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
            replaces=bool(subject),
            expires_at=expires_at,
        )

    async def remember(
        self, scope: Scope, memories: Iterable[Memory], progress: Mapping[str, ReadThrough] | None = None
    ) -> tuple[Memory, ...]:
        """Store memories as captured; returns what stands for them.

        A memory whose id is stored already was captured by another process. A text that is remembered counts one more
        mention. One that replaces its subject, or says the same terms in the same order, takes the place of the earlier
        one, which stays with its validity. `progress` tells how far sessions were read for them.

        Raises:
            Invalid: the owner has too many preferences.
        """
        scope = self.check_owner(scope)
        clean = [one for memory in memories if (one := await self._clean(scope, memory)) is not None]
        vectors = await self.vectors.of_memories(scope, [memory.text for memory in clean])
        async with self._cache.current(scope) as owner:
            merge = Merge(self._records, scope, owner)
            try:
                for place, (memory, vector) in enumerate(zip(clean, vectors, strict=True), 1):
                    await merge.add(memory, vector)
                    if not place % CHANGES_AT_ONCE:
                        await sleep(0)
                await merge.store()
                await self._trim(scope, owner, merge.changed_ids)
            except BaseException:
                merge.drop_unstored()
                # What was read for what could not be stored is read again.
                progress = None
                raise
            finally:
                if merge.changed_ids or progress:
                    await self._cache.announce(scope, owner, merge.changed_ids, progress)
        return tuple(merge.memories)

    # What captures have yet to read

    def last_marks(self, scope: Scope) -> Marks:
        """The marks of an owner's sessions with unread statements, as this process last saw them."""
        return self._cache.last_log(_owner_of(scope)).unread

    async def change_marks(self, scope: Scope, change: ChangeMarks) -> MemoryLog:
        """Change those marks; returns the log with them, which also tells how far sessions were read."""
        return await self._cache.change_marks(_owner_of(scope), change)

    async def drop_sessions(self, scope: Scope, marks: Mapping[str, int]) -> None:
        """Note that sessions are gone, with their marks of these numbers."""
        await self._records.drop_sessions(_owner_of(scope), marks)

    async def last_log(self, scope: Scope) -> MemoryLog:
        """How far sessions were read for memories, and which of them have more to read, as this process last saw it."""
        log = self._cache.last_log(_owner_of(scope))
        return log if log.version else await self._records.read_log(_owner_of(scope))

    async def edit(
        self, scope: Scope, memory_id: str, *, text: str | None = None, kind: MemoryKind | None = None
    ) -> Memory:
        """Change the text or the kind of a memory. A changed text is no quotation any more, and counts as written.

        Raises:
            MemoryNotFound: the owner has none of that id.
            Invalid: the text is empty, too long, or may not be remembered.
            Conflict: another process changes it at the same time.
        """
        scope = await self._person.owner_holding(self.check_owner(scope), check_id(memory_id, "the memory id"))
        return await self._person.show(scope, await self._edit(scope, memory_id, text, kind))

    async def _edit(self, scope: Scope, memory_id: str, text: str | None, kind: MemoryKind | None) -> Memory:
        owner = await self._load(scope)
        for _ in range(_TRIES):
            row = await self._records.read(scope, memory_id)
            if row is None or is_expired(row.memory, self._clock()):
                raise MemoryNotFound
            clean = await self._clean(scope, self._edit_fields(row.memory, text, kind))
            if clean is None:
                raise Invalid(_REFUSAL)
            (vector,) = await self.vectors.of_memories(scope, [clean.text])
            async with owner.lock:
                if clean.text != row.memory.text:
                    await self._cache.forget_stored(scope, owner, {memory_id})
                memory = await self._records.write(scope, clean, row.version)
                if memory is not None:
                    owner.put(memory, vector)
                    await self._cache.announce(scope, owner, [memory_id])
                    if clean.text != row.memory.text:
                        await self._records.write_vector(scope, memory, vector)
                    return memory
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
        """Remove memories by their ids, of a session, or all of the person; returns how many there were.

        What was superseded by them holds again. In a `dry_run` they stay.

        Raises:
            Unavailable: what was said last is still being read for memories, and would come back; nothing is removed.
        """
        owner = _owner_of(scope)
        # Else a capture would bring back what was said before.
        is_wide = not dry_run and (everything or bool(session_id))
        await self._load_caught_up(owner, _FORGETTING_SECONDS if is_wide else _CATCH_UP_SECONDS)
        owners, captures = await self._person.owners_of(owner), self.captures
        if is_wide and captures is not None and any(captures.is_reading(one, self.last_marks(one)) for one in owners):
            raise Unavailable("memories", "are being made of what was said last; forget again in a moment")
        count = 0
        for one in owners:
            count += await self._forget(one, memory_ids, session_id, everything=everything, dry_run=dry_run)
        return count

    async def _forget(
        self, scope: Scope, memory_ids: Sequence[str], session_id: str, *, everything: bool, dry_run: bool
    ) -> int:
        owner = await self._load(scope)
        async with owner.lock:
            ids = [check_id(one, "the memory id") for one in memory_ids]
            if session_id:
                ids += [one.id for one in owner.memories.values() if one.session_id == session_id]
            if everything:
                ids = await self._records.ids(scope)
            unique = list(dict.fromkeys(ids))
            if dry_run:
                return len([one for one in unique if everything or one in owner.memories])
            count = await self._remove(scope, owner, unique)
            if everything:
                await self._records.remove_orphaned_vectors(scope, ())
            return count

    async def withdraw(self, scope: Scope, memory_ids: Sequence[str], marks: Mapping[str, int]) -> None:
        """Remove memories whose session or user was removed while they were made; `marks` are those of the sessions."""
        await self._forget(_owner_of(scope), memory_ids, "", everything=False, dry_run=False)
        await self.drop_sessions(scope, marks)

    async def unmention(self, scope: Scope, memory_id: str) -> None:
        """Take back the last mention of a memory, with its place, and the memory if it was the only one."""
        scope = _owner_of(scope)
        owner = await self._load(scope)
        async with owner.lock:
            memory = owner.memories.get(memory_id)
            if memory is not None and memory.mentions > 1:
                merge = Merge(self._records, scope, owner)
                await merge.rewrite(
                    memory_id, lambda one: replace(one, mentions=one.mentions - 1, session_id="", seqs=())
                )
                await self._cache.announce(scope, owner, merge.changed_ids)
            else:
                await self._remove(scope, owner, [memory_id])

    async def index_missing(self, scope: Scope) -> int:
        """Remove expired memories and embed those without a vector of this embedder; returns how many were embedded.

        So memories that were stored while the embedder was away, or with another embedder, are found by meaning again.
        """
        scope = _owner_of(scope)
        owner = await self._cache.load(scope)
        async with owner.lock:
            now = self._clock()
            await self._remove(scope, owner, [one.id for one in owner.memories.values() if is_expired(one, now)])
        return await self.vectors.add_missing(scope)

    async def embed_remaining(self, scope: Scope, within: timedelta) -> int:
        """Embed an owner's memories that lack a vector, for so long: a short process ends before a sweep does it.

        Returns how many still lack one.
        """
        if self.embedder is None or not await self.count_unembedded(scope):
            return 0
        with suppress(TimeoutError):
            async with timeout(within.total_seconds()):
                if not self.embedder.ready:
                    await self.embedder.warm()
                await self.index_missing(scope)
        return await self.count_unembedded(scope)

    async def count_unembedded(self, scope: Scope) -> int:
        """How many of an owner's memories have no vector of this embedder, and are found by words alone."""
        owners = [await self._cache.load(one) for one in await self._person.owners_of(_owner_of(scope))]
        return sum([len(owner.memories) - len(owner.embedded) for owner in owners])

    async def sweep_owner(self, scope: Scope) -> int:
        """As `index_missing`, for an owner who need not be here: the copy leaves again.

        What another process had not read when it died is captured, before its session expires.
        """
        was_cached = self._cache.contains(_owner_of(scope))
        try:
            count = await self.index_missing(scope)
            await self._catch_up(_owner_of(scope), None, _CATCH_UP_SECONDS)
            return count
        finally:
            if not was_cached:
                await self._cache.drop(_owner_of(scope))

    async def drain(self) -> None:
        """Wait until vectors that are being added in the background are stored."""
        await self._cache.drain()

    async def close(self) -> None:
        """End what runs in the background: vectors that are missing then are added in another process."""
        await self._cache.close()

    def clear_cache(self) -> None:
        """Drop what this process holds of memories, as after the erasure of a user."""
        self._cache.clear()
        self._person.clear()
        if self.embedder is not None:
            self.embedder.clear_cache()

    async def stored(self, scope: Scope) -> AsyncIterator[StoredMemory]:
        """Every memory of an owner as it is stored, for an audit."""
        async for one in self._records.load(_owner_of(scope)):
            yield one

    async def _load_caught_up(self, scope: Scope, seconds: float) -> OwnerMemories:
        """The memories of a person, with those of what was said a moment ago."""
        owner = await self._person.load(scope)
        await self._catch_up(scope, None, seconds)
        return owner

    async def _catch_up(self, scope: Scope, but: str | None, seconds: float) -> bool:
        """Have read for memories what a person said a moment ago, but in one session; returns whether all of it was.

        It is not waited for longer than so many seconds. The memories were loaded before.
        """
        owners = await self._person.owners_of(scope)
        captures = self.captures
        if captures is None:
            if all(session_id == but for one in owners for session_id in self.last_marks(one)):
                return True
            captures = await self._find_captures()
            if captures is None:
                return False
        due = [one for one in owners if captures.is_due(one, self.last_marks(one), but)]
        if not due:
            return True
        reading = [captures.catch_up(one, self.last_marks(one), but, seconds) for one in due]
        complete = all(await gather(*reading))
        # Also of a capture that failed: the copy may hold what was not stored.
        await self._person.load(scope)
        return complete

    async def _find_captures(self) -> CatchUp | None:
        """What captures, opened for what another process has left unread."""
        try:
            if self._open_captures is not None:
                await self._open_captures()
        except TenutoError as error:
            _log.warning("what was said last cannot be captured in this process: %s", error.code)
        return self.captures

    async def _load(self, scope: Scope) -> OwnerMemories:
        owner = await self._cache.load(scope)
        self.vectors.add_later(scope, owner)
        return owner

    # One memory at a time

    async def _clean(self, scope: Scope, memory: Memory) -> Memory | None:
        """The memory as it may be stored, with its expiry; `None` if the policy forbids it."""
        text = await self._redact(scope, memory.text)
        subject = await self._redact(scope, memory.subject) if memory.subject else ""
        if text is None or not text.strip():
            return None
        life = self.policy.life_of(memory.kind)
        expires = memory.expires_at or (memory.said_at + life if life is not None else None)
        return replace(memory, text=text[:MAX_MEMORY], subject=subject or "", expires_at=expires)

    async def _trim(self, scope: Scope, owner: OwnerMemories, change_log: MutableSequence[str]) -> None:
        """Remove the oldest memories above the limit of an owner; preferences stay."""
        over = len(owner.memories) - self.policy.max_memories
        if over > 0:
            facts = (one for one in owner.memories.values() if one.kind is not MemoryKind.PREFERENCE)
            oldest = nsmallest(over, facts, key=lambda one: (not one.superseded_by, one.said_at, one.id))
            surplus = [one.id for one in oldest if one.id not in change_log]
            await self._records.remove(scope, surplus)
            await self._cache.remove(owner, surplus)
            change_log.extend(surplus)

    async def _remove(self, scope: Scope, owner: OwnerMemories, memory_ids: Sequence[str]) -> int:
        if not memory_ids:
            return 0
        merge = Merge(self._records, scope, owner)
        try:
            await self._cache.forget_stored(scope, owner, set(memory_ids))
            count = await self._records.remove(scope, memory_ids)
            await self._cache.remove(owner, memory_ids)
            for one in owner.superseded_by(set(memory_ids)):
                await merge.rewrite(one.id, _holds_again)
        except BaseException:
            # The copy does not know how much of it was done.
            owner.loaded_at = None
            raise
        finally:
            await self._cache.announce(scope, owner, [*memory_ids, *merge.changed_ids])
        return count

    def _edit_fields(self, memory: Memory, text: str | None, kind: MemoryKind | None) -> Memory:
        if text is not None and text != memory.text:
            memory = replace(memory, text=text, source=MemorySource.WRITTEN)
        if kind is not None and kind != memory.kind:
            # Each kind has its own expiry, which begins now.
            life = self.policy.life_of(MemoryKind(kind))
            expires = self._clock() + life if life is not None else None
            memory = replace(memory, kind=MemoryKind(kind), expires_at=expires)
        return memory


def captured_id(*facts: str) -> str:
    """The id of a memory that is captured from these facts: two processes that capture the same make one memory."""
    return sha256("\0".join(facts).encode(errors="surrogatepass")).hexdigest()[:32]


def _holds_again(memory: Memory) -> Memory:
    return replace(memory, valid_until=None, superseded_by="")


def _normal_subject(subject: str) -> str:
    """A subject as it is compared: notes on the same thing take each other's place, however it is spelled."""
    subject = " ".join(check_text(subject, "the subject").casefold().split())
    if len(subject) > MAX_SUBJECT:
        raise Invalid(f"a subject has at most {MAX_SUBJECT} characters, not {len(subject)}")
    return subject


def _owner_of(scope: Scope) -> Scope:
    check_type(scope, Scope, "scope")
    if scope.visitor:
        raise Invalid("visitors have no memories: name a user or a chat")
    return owner_scope(scope)
