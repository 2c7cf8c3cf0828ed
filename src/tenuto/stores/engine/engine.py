"""The engine: the only implementation of `SessionStore` and `TraceStore`, over any `RecordStore`.

Each method names a rule and queues it on the session's lane. Reads are answered from the cache while the feed confirms
what it holds; a refused access is always checked in the store, so that timing does not tell a foreign session from an
absent one.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from functools import partial
from random import Random
from typing import Final, Self

from tenuto.errors import DecryptionFailed, SearchOff, SessionForeign, SessionNotFound, StateCorrupt, StoreUnavailable
from tenuto.model import (
    AppendBatch,
    AppendResult,
    Attachment,
    BeginTurn,
    Changes,
    Content,
    FinishTurn,
    ForkRequest,
    MessagePage,
    OpenTurn,
    Page,
    Rewrite,
    Scope,
    SearchPage,
    SearchQuery,
    Session,
    SessionPage,
    SessionQuery,
    Truncation,
)
from tenuto.model.scope import session_key
from tenuto.model.stored import Action, Entry, EntryPage, FoundRecord, Part, RecordChange
from tenuto.model.turn import RunningTurn, Trace
from tenuto.ports import Clock, RecordFeed, RecordStore, utc_now
from tenuto.stores.encoding import Undecodable
from tenuto.stores.engine import rules
from tenuto.stores.engine.cache import RecordCache
from tenuto.stores.engine.codec import PLAIN, Codec, Codecs, PlainCodecs
from tenuto.stores.engine.commands import Append, Begin, Command, Finish, Renew
from tenuto.stores.engine.journal import Journal
from tenuto.stores.engine.journal_folder import JournalFolder
from tenuto.stores.engine.lane import LaneContext, Rule, SourceChanged
from tenuto.stores.engine.listing import Listing, find_record
from tenuto.stores.engine.record import Answer, MessagesMissing, Record, Step, TracesMissing
from tenuto.stores.engine.rules.attachments import find_attachment
from tenuto.stores.engine.searching import WordSearch
from tenuto.stores.engine.state import EngineState
from tenuto.stores.engine.turn_logs import EngineTurnLogs
from tenuto.stores.engine.upkeep import EngineUpkeep

_MOST_FORKS: Final = 20
_LAST: Final = 2**62


class Engine:
    """Sessions, traces, state and upkeep over records. Time and chance are parameters.

    Open it with `async with`, which listens to the feed; without a feed, that may be left out. With a `folder` calls
    are acknowledged there while the store is away; the owner of the engine runs `sessions.journal.run()`. An erasure
    `tells_machines` that have a folder of their own, with or without one here. Sessions that are not `searchable` are
    not indexed.
    """

    def __init__(
        self,
        records: RecordStore,
        *,
        chance: Random,
        clock: Clock = utc_now,
        codecs: Codecs | None = None,
        folder: JournalFolder | None = None,
        tells_machines: bool = False,
        searchable: bool = True,
        max_sessions: int = 10_000,
        max_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self.records = records
        self.cache = RecordCache(records.feed, max_sessions=max_sessions, max_bytes=max_bytes)
        context = LaneContext(records, self.cache, clock=clock, chance=chance, searchable=searchable)
        codecs = codecs or PlainCodecs()
        self.sessions = EngineSessions(context, codecs)
        self.traces = EngineTraces(self.sessions)
        self.state = EngineState(records, codecs, context.chance)
        self.upkeep = EngineUpkeep(records, self.cache, codecs, clock, self.state)
        self.upkeep.words, self.upkeep.unindexed = self.sessions.words, context.unindexed
        self.upkeep.tells_machines = tells_machines or folder is not None
        if folder is not None:
            self.sessions.journal = self.upkeep.journal = Journal(
                folder,
                records,
                self.cache,
                self.state,
                clock=clock,
                name=str(context.writer),
                codec=self.sessions.codec,
                queue=self.sessions.queue,
            )
        self.elsewhere: ElsewhereChanges | None = None
        self.turn_logs: EngineTurnLogs | None = None
        if records.feed is not None:
            self.elsewhere = ElsewhereChanges(records.feed)
            self.turn_logs = EngineTurnLogs(records, codecs, context.chance, clock, self.elsewhere)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self.records.feed is not None:
            await self._stack.enter_async_context(self.records.feed.watch(self._on_change))
        return self

    def _on_change(self, key: bytes | None, revision: int) -> None:
        is_news = key is None or self.cache.is_news(key, revision)
        self.cache.on_change(key, revision)
        if is_news and self.elsewhere is not None:
            self.elsewhere.tell(key)

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self.cache.clear()

    async def close(self) -> None:
        """Stop listening, and close the backend."""
        await self.__aexit__()
        await self.records.close()


class ElsewhereChanges:
    """The `ElsewhereFeed` port: what the feed of the backend tells and the cache does not know."""

    def __init__(self, feed: RecordFeed) -> None:
        self._feed = feed
        self._watchers: list[Callable[[bytes | None], None]] = []

    @asynccontextmanager
    async def watch(self, on_change: Callable[[bytes | None], None]) -> AsyncIterator[None]:
        self._watchers.append(on_change)
        try:
            yield
        finally:
            self._watchers.remove(on_change)

    def look(self) -> bool:
        return self._feed.caught_up()

    def tell(self, key: bytes | None) -> None:
        """Call the watchers."""
        for on_change in self._watchers:
            on_change(key)


class EngineSessions:
    """The `SessionStore` port."""

    def __init__(self, context: LaneContext, codecs: Codecs) -> None:
        self.context = context
        self.journal: Journal | None = None
        self.serves_reads = True
        """Whether reads are answered from the cache, where the feed confirms it."""
        self._codecs = codecs
        self._listing = Listing(context.records, codecs, context.clock)
        self.words = WordSearch(context.records, codecs, self._listing, index=self._index_words, messages=self.messages)

    # Turns

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        command = Begin(scope=scope, request=request)
        return await self._run(scope, request.session_id, command, tail=request.window)

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        return await self._run(turn.scope, turn.session.id, Finish(turn=turn, request=request))

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        return await self._run(turn.scope, turn.session.id, Renew(turn=turn))

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        return await self._run(scope, session_id, Append(scope=scope, session_id=session_id, batch=batch))

    # Reading

    async def running_turn(self, scope: Scope, session_id: str) -> RunningTurn | None:
        return await self.read(scope, session_id, lambda record, now: rules.read_lease(record, scope, session_id, now))

    async def get(self, scope: Scope, session_id: str) -> Session:
        return await self.read(scope, session_id, lambda record, now: rules.read_head(record, scope, session_id, now))

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        newest = query.limit if query.before is None and query.after is None else 0
        return await self.read(
            scope, session_id, lambda record, now: rules.read_page(record, scope, session_id, query, now), tail=newest
        )

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        return await self._listing.list(scope, query)

    async def search(self, scope: Scope, query: SearchQuery) -> SearchPage:
        if not self.context.searchable:
            raise SearchOff
        return await self.words.search(scope, query)

    async def _index_words(self, scope: Scope, session_id: str, anew: bool) -> None:
        if not self.context.searchable:
            await self._edit(scope, session_id, rules.forget_words)
            return
        is_first = True
        while not await self._edit(scope, session_id, partial(rules.index_words, anew=anew and is_first)):
            is_first = False

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        return await self._edit(
            scope, session_id, lambda record, now: rules.patch(record, scope, session_id, changes, now), alone=False
        )

    async def reset(self, scope: Scope, session_id: str, *, keep_metadata: Sequence[str] = ()) -> Session:
        return await self._edit(
            scope, session_id, lambda record, now: rules.reset(record, scope, session_id, keep_metadata, now)
        )

    async def fork(self, scope: Scope, session_id: str, request: ForkRequest) -> Session:
        for _ in range(_MOST_FORKS):
            source = await self.read(
                scope, session_id, lambda record, now: _read_source(record, scope, session_id, request, now)
            )
            try:
                return await self._fork(scope, source, session_id, request)
            except SourceChanged:
                continue
        raise StoreUnavailable(why="keeps being changed by other writers")

    async def _fork(self, scope: Scope, source: Record, session_id: str, request: ForkRequest) -> Session:
        return await self._edit(
            scope,
            request.new_id,
            lambda target, now: rules.fork(source, target, scope, session_id, request, now),
            source=(session_key(scope, session_id), source.revision),
        )

    async def truncate(self, scope: Scope, session_id: str, request: Truncation) -> Session:
        return await self._edit(
            scope, session_id, lambda record, now: rules.truncate(record, scope, session_id, request, now)
        )

    async def rewrite(self, scope: Scope, session_id: str, request: Rewrite) -> Session:
        return await self._edit(
            scope, session_id, lambda record, now: rules.rewrite(record, scope, session_id, request, now)
        )

    async def delete(self, scope: Scope, session_id: str) -> None:
        try:
            await self._edit(scope, session_id, lambda record, now: rules.delete(record, scope, session_id, now))
        except DecryptionFailed:
            # Its key may be lost: it can be removed all the same.
            await self._delete_unopened(scope, session_id)

    async def _delete_unopened(self, scope: Scope, session_id: str) -> None:
        found = await self._find(scope, session_id)
        if found is None:
            raise SessionNotFound(session_id)
        removal = RecordChange(key=found.record.key, if_revision=found.record.revision, action=Action.REMOVE)
        if await self.context.records.commit((removal,)) is not None:
            raise StoreUnavailable(why="is changed by others at the same time")
        self.context.cache.drop(found.record.key)
        self.context.cache.on_commit(found.record.key, None)

    async def _find(self, scope: Scope, session_id: str) -> FoundRecord | None:
        """A session that does not open, by its columns; it is hidden from those it does not belong to.

        Raises:
            SessionForeign: it belongs to another user.
        """
        found = await find_record(self.context.records, session_key(scope, session_id))
        owner = None if found is None else found.index.scope
        if owner is not None and not scope.reaches(owner):
            raise SessionForeign(session_id, ":".join(owner.owner))
        return found

    # Attachments

    async def attachments(self, scope: Scope, session_id: str) -> tuple[Attachment, ...]:
        return await self.read(
            scope, session_id, lambda record, now: rules.read_attachments(record, scope, session_id, now)
        )

    async def attachment(self, scope: Scope, session_id: str, attachment_id: str) -> Content:
        def place(record: Record) -> tuple[int, int, int]:
            number = find_attachment(record, attachment_id).number
            return number, number, 1

        try:
            record, entries = await self.entries(scope, session_id, Part.ATTACHMENTS, place)
        except StoreUnavailable:
            content = await self._journaled_content(scope, session_id, attachment_id)
            if content is None:
                raise
            return content
        one = find_attachment(record, attachment_id)
        try:
            (entry,) = entries
            return await self.decode(scope, lambda codec: codec.decode_content(entry, one))
        except (Undecodable, ValueError) as error:
            raise StateCorrupt("attachment", "cannot be decoded") from error

    async def _journaled_content(self, scope: Scope, session_id: str, attachment_id: str) -> Content | None:
        """In an outage, content that came with a turn which waits; the session is read again to check the access."""
        if self.journal is None:
            return None
        record = await self.read(scope, session_id, _read_record(scope, session_id))
        find_attachment(record, attachment_id)
        return await self.journal.content(session_key(scope, session_id), attachment_id, await self.codec(scope))

    async def remove_attachment(self, scope: Scope, session_id: str, attachment_id: str) -> Session:
        return await self._edit(
            scope,
            session_id,
            lambda record, now: rules.remove_attachment(record, scope, session_id, attachment_id, now),
        )

    # What the methods share

    async def codec(self, scope: Scope, *, refresh: bool = False) -> Codec:
        """The codec of a tenant's site, to read with."""
        return (not refresh and self._codecs.ready(scope)) or await self._codecs.load(scope, refresh=refresh)

    async def decode(self, scope: Scope, decode: Callable[[Codec], Answer]) -> Answer:
        """What entries say; once more with fresh keys if they do not open, since another process may have added one."""
        try:
            return decode(await self.codec(scope))
        except DecryptionFailed:
            return decode(await self.codec(scope, refresh=True))

    async def entries(
        self, scope: Scope, session_id: str, part: Part, place: Callable[[Record], tuple[int, int, int]]
    ) -> tuple[Record, tuple[Entry, ...]]:
        """A session that the scope reaches, and what it has in a `place`: the first and last number, and how many.

        Both are of one moment: they are read again if the session changed in between.
        """
        key = session_key(scope, session_id)
        while True:
            record = await self.read(scope, session_id, _read_record(scope, session_id))
            paging: Future[EntryPage] = self.context.records.page(key, part, *place(record))
            page = await paging
            if page.revision == record.revision:
                return record, page.entries
            if page.revision == 0:
                raise SessionNotFound(session_id)
            # What the page tells of may reach the feed later.
            self.context.cache.on_change(key, page.revision)

    async def read(self, scope: Scope, session_id: str, rule: Rule[Answer], *, tail: int = 0) -> Answer:
        """Answer a read, which may need the newest messages; in an outage from the journal."""
        key = session_key(scope, session_id)
        if self.journal is None:
            return await self._read_stored(scope, session_id, key, rule, tail)
        return await self.journal.read(scope, key, rule, lambda: self._read_stored(scope, session_id, key, rule, tail))

    async def _read_stored(self, scope: Scope, session_id: str, key: bytes, rule: Rule[Answer], tail: int) -> Answer:
        """Answer from the cache if what it holds is confirmed and suffices, else through the lane."""
        record = self.context.cache.confirmed(key) if self.serves_reads else None
        if record is not None:
            try:
                step = rule(record, self.context.clock())
            except (SessionNotFound, MessagesMissing, TracesMissing):
                pass  # The store is asked: a refusal must take as long for a foreign session as for none.
            else:
                if not step.touched:
                    self.context.cache.hits += 1
                    return step.answer
        self.context.cache.misses += 1
        return await self.queue(scope, key, session_id, rule, writing=False, tail=tail)

    def _run(self, scope: Scope, session_id: str, command: Command[Answer], *, tail: int = 0) -> Awaitable[Answer]:
        """Carry out a command that a journal may acknowledge."""
        key = session_key(scope, session_id)
        if self.journal is None:
            if self._codecs.ready(scope) is PLAIN:
                return self.context.submit(key, session_id, PLAIN, command.apply, tail=tail)
            return self.queue(scope, key, session_id, command.apply, tail=tail)
        return self.journal.change(key, command, lambda: self.queue(scope, key, session_id, command.apply, tail=tail))

    async def _edit(
        self,
        scope: Scope,
        session_id: str,
        rule: Rule[Answer],
        source: tuple[bytes, int] | None = None,
        *,
        alone: bool = True,
    ) -> Answer:
        """Carry out a change that no journal acknowledges; one of stored messages in a commit of its own."""
        key = session_key(scope, session_id)
        if self.journal is None:
            return await self.queue(scope, key, session_id, rule, alone=alone, source=source)
        return await self.journal.refuse_in_outage(
            key, lambda: self.queue(scope, key, session_id, rule, alone=alone, source=source)
        )

    async def queue(
        self,
        scope: Scope,
        key: bytes,
        session_id: str,
        rule: Rule[Answer],
        *,
        alone: bool = False,
        writing: bool = True,
        source: tuple[bytes, int] | None = None,
        tail: int = 0,
    ) -> Answer:
        """Queue a rule on a session's lane; once more with fresh keys if the session does not open, since another
        process may have added one."""
        codec = self._codecs.ready(scope) or await self._codecs.load(scope, writing=writing)
        try:
            return await self.context.submit(key, session_id, codec, rule, alone=alone, source=source, tail=tail)
        except DecryptionFailed:
            codec = await self._codecs.load(scope, writing=writing, refresh=True)
            try:
                return await self.context.submit(key, session_id, codec, rule, alone=alone, source=source, tail=tail)
            except DecryptionFailed:
                await self._find(scope, session_id)
                raise


def _read_record(scope: Scope, session_id: str) -> Rule[Record]:
    return lambda record, now: rules.read_record(record, scope, session_id, now)


def _read_source(
    record: Record | None, scope: Scope, session_id: str, request: ForkRequest, now: datetime
) -> Step[Record]:
    """The record of a fork's source, with the message that a fork needs of it; the id of the fork is not looked at."""
    rules.fork(record, None, scope, session_id, request, now)
    assert record is not None
    return Step(record=record, answer=record, changed=False)


class EngineTraces:
    """The `TraceStore` port. A trace belongs to the head that it was read with."""

    def __init__(self, sessions: EngineSessions) -> None:
        self._sessions = sessions

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        found = await self._page(scope, session_id, number, number, 1)
        return found[0] if found else None

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        last = _LAST if before is None else before - 1
        return (await self._page(scope, session_id, 0, last, -min(limit, _LAST)))[::-1] if limit > 0 else ()

    async def _page(self, scope: Scope, session_id: str, first: int, last: int, limit: int) -> tuple[Trace, ...]:
        place = min(first, _LAST), min(last, _LAST), limit
        _, entries = await self._sessions.entries(scope, session_id, Part.TRACES, lambda _: place)
        return await self._sessions.decode(scope, lambda codec: codec.decode_traces(entries, session_id))
