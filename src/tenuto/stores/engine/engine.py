"""The engine: the only implementation of `SessionStore` and `TraceStore`, over any `RecordStore`.

Each method names a rule and queues it on the session's lane. Reads are answered from the cache while the feed confirms
what it holds; a refused access is always checked in the store, so that timing does not tell a foreign session from an
absent one.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from functools import lru_cache
from random import Random
from typing import Final, Protocol, Self

from tenuto.errors import SessionNotFound, StoreUnavailable
from tenuto.model import (
    AppendBatch,
    AppendResult,
    BeginTurn,
    Changes,
    FinishTurn,
    ForkRequest,
    MessagePage,
    OpenTurn,
    Page,
    Rewrite,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    Truncation,
)
from tenuto.model.scope import session_key as compute_session_key
from tenuto.model.stored import EntryPage, Part
from tenuto.model.turn import Trace
from tenuto.ports import Clock, RecordStore, utc_now
from tenuto.stores.engine import rules
from tenuto.stores.engine.cache import RecordCache
from tenuto.stores.engine.codec import PLAIN, Codec
from tenuto.stores.engine.commands import Append, Begin, Command, Finish, Patch, Renew
from tenuto.stores.engine.journal import Journal, JournalFolder
from tenuto.stores.engine.lane import LaneContext, Rule, SourceChanged
from tenuto.stores.engine.listing import Listing
from tenuto.stores.engine.record import Answer, MessagesMissing, Record, Step, TracesMissing
from tenuto.stores.engine.state import EngineState
from tenuto.stores.engine.upkeep import EngineUpkeep

_MOST_FORKS: Final = 20
_LONG_ID: Final = 256


@lru_cache(maxsize=10_000)
def _site_session_key(tenant: str, site: str, session_id: str) -> bytes:
    return compute_session_key(Scope(tenant=tenant, site=site), session_id)


def session_key(scope: Scope, session_id: str) -> bytes:
    """The key of a session, computed once for one in use."""
    if len(session_id) > _LONG_ID:
        return compute_session_key(scope, session_id)
    return _site_session_key(scope.tenant, scope.site, session_id)


class Codecs(Protocol):
    """The codec of each tenant's site."""

    def ready(self, scope: Scope) -> Codec | None:
        """The codec, if its keys are loaded."""
        ...

    async def load(self, scope: Scope) -> Codec:
        """The codec, with its keys loaded."""
        ...


class PlainCodecs:
    """Nothing is sealed."""

    def ready(self, scope: Scope) -> Codec:
        return PLAIN

    async def load(self, scope: Scope) -> Codec:
        return PLAIN


class Engine:
    """Sessions, traces, state and upkeep over records. Time and chance are parameters.

    Open it with `async with`, which listens to the feed; without a feed, that may be left out. With a `folder` calls
    are acknowledged there while the store is away; the owner of the engine runs `sessions.journal.run()`.
    """

    def __init__(
        self,
        records: RecordStore,
        *,
        chance: Random,
        clock: Clock = utc_now,
        codecs: Codecs | None = None,
        folder: JournalFolder | None = None,
        max_sessions: int = 10_000,
        max_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self.records = records
        self.cache = RecordCache(records.feed, max_sessions=max_sessions, max_bytes=max_bytes)
        context = LaneContext(records, self.cache, clock=clock, chance=chance)
        codecs = codecs or PlainCodecs()
        self.sessions = EngineSessions(context, codecs)
        self.traces = EngineTraces(self.sessions)
        self.state = EngineState(records, codecs, context.chance)
        self.upkeep = EngineUpkeep(records, self.cache, codecs, clock)
        if folder is not None:
            self.sessions.journal = Journal(
                folder, records, self.cache, clock=clock, name=str(context.writer), queue=self.sessions.queue
            )
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self.records.feed is not None:
            await self._stack.enter_async_context(self.records.feed.watch(self.cache.on_change))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self.cache.clear()

    async def close(self) -> None:
        """Stop listening, and close the backend."""
        await self.__aexit__()
        await self.records.close()


class EngineSessions:
    """The `SessionStore` port."""

    def __init__(self, context: LaneContext, codecs: Codecs) -> None:
        self.context = context
        self.journal: Journal | None = None
        self._codecs = codecs
        self._listing = Listing(context.records, codecs, context.clock)

    # Turns

    async def begin_turn(self, scope: Scope, request: BeginTurn) -> OpenTurn:
        return await self._run(request.session_id, Begin(scope=scope, request=request))

    async def finish_turn(self, turn: OpenTurn, request: FinishTurn) -> AppendResult:
        return await self._run(turn.session.id, Finish(turn=turn, request=request))

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        return await self._run(turn.session.id, Renew(turn=turn))

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        return await self._run(session_id, Append(scope=scope, session_id=session_id, batch=batch))

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        return await self.read(scope, session_id, lambda record, now: rules.read_head(record, scope, session_id, now))

    async def messages(self, scope: Scope, session_id: str, query: Page) -> MessagePage:
        return await self.read(
            scope, session_id, lambda record, now: rules.read_page(record, scope, session_id, query, now)
        )

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        return await self._listing.list(scope, query)

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        return await self._run(session_id, Patch(scope=scope, session_id=session_id, changes=changes))

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
        await self._edit(scope, session_id, lambda record, now: rules.delete(record, scope, session_id, now))

    # What the methods share

    async def codec(self, scope: Scope) -> Codec:
        """The codec of a tenant's site."""
        return self._codecs.ready(scope) or await self._codecs.load(scope)

    async def read(self, scope: Scope, session_id: str, rule: Rule[Answer]) -> Answer:
        """Answer a read; in an outage from the journal."""
        key = session_key(scope, session_id)
        if self.journal is None:
            return await self._read_stored(scope, session_id, key, rule)
        return await self.journal.read(key, rule, lambda: self._read_stored(scope, session_id, key, rule))

    async def _read_stored(self, scope: Scope, session_id: str, key: bytes, rule: Rule[Answer]) -> Answer:
        """Answer from the cache if what it holds is confirmed and suffices, else through the lane."""
        record = self.context.cache.confirmed(key)
        if record is not None:
            try:
                step = rule(record, self.context.clock())
            except (SessionNotFound, MessagesMissing, TracesMissing):
                pass  # The store is asked: a refusal must take as long for a foreign session as for none.
            else:
                if not step.touched:
                    return step.answer
        return await self.queue(scope, key, session_id, rule)

    async def _run(self, session_id: str, command: Command[Answer]) -> Answer:
        """Carry out a command that a journal may acknowledge."""
        scope = command.scope
        key = session_key(scope, session_id)
        if self.journal is None:
            codec = self._codecs.ready(scope) or await self._codecs.load(scope)
            return await self.context.submit(key, session_id, codec, command.apply)
        return await self.journal.change(key, command, lambda: self.queue(scope, key, session_id, command.apply))

    async def _edit(
        self, scope: Scope, session_id: str, rule: Rule[Answer], source: tuple[bytes, int] | None = None
    ) -> Answer:
        """Carry out a change of stored messages, in a commit of its own."""
        key = session_key(scope, session_id)
        if self.journal is None:
            return await self.queue(scope, key, session_id, rule, alone=True, source=source)
        return await self.journal.refuse_in_outage(
            key, lambda: self.queue(scope, key, session_id, rule, alone=True, source=source)
        )

    async def queue(
        self,
        scope: Scope,
        key: bytes,
        session_id: str,
        rule: Rule[Answer],
        *,
        alone: bool = False,
        source: tuple[bytes, int] | None = None,
    ) -> Answer:
        """Queue a rule on a session's lane."""
        codec = self._codecs.ready(scope) or await self._codecs.load(scope)
        return await self.context.submit(key, session_id, codec, rule, alone=alone, source=source)


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
        last = 2**62 if before is None else before - 1
        return (await self._page(scope, session_id, 0, last, -limit))[::-1] if limit > 0 else ()

    async def _page(self, scope: Scope, session_id: str, first: int, last: int, limit: int) -> tuple[Trace, ...]:
        """Traces of a session that the scope reaches; read again if the session changed between head and page."""
        sessions = self._sessions
        codec, key = await sessions.codec(scope), session_key(scope, session_id)
        while True:
            record = await sessions.read(
                scope, session_id, lambda record, now: rules.read_record(record, scope, session_id, now)
            )
            paging: Future[EntryPage] = sessions.context.records.page(key, Part.TRACES, first, last, limit)
            page = await paging
            if page.revision == record.revision:
                return tuple(codec.decode_trace(entry, session_id) for entry in page.entries)
            if page.revision == 0:
                raise SessionNotFound(session_id)
