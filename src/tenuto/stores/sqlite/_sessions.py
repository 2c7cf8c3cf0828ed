"""Sessions in a SQLite file, each step one transaction; and the traces of their turns."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from msgspec.structs import replace

from tenuto.errors import SessionCorrupt, StoreFull, StoreReadOnly, TurnLost
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
from tenuto.model.turn import Trace
from tenuto.stores.codec import encode_trace, to_micros
from tenuto.stores.sqlite import _edits, _listing, _log, _turns
from tenuto.stores.sqlite._database import Ask, Database
from tenuto.stores.sqlite._errors import CorruptRow
from tenuto.stores.sqlite._heads import reach
from tenuto.stores.sqlite._rows import session_of


class SqliteSessions:
    """The `SessionStore` port over one SQLite file."""

    def __init__(self, database: Database) -> None:
        self._db = database

    # Turns

    async def begin_turn(self, scope: Scope, opening: BeginTurn) -> OpenTurn:
        ask = self._db.ask(scope, opening.session_id)
        return await self._db.write(_turns.begin_turn, ask, scope, opening, _log.encode_bodies(opening.words))

    async def finish_turn(self, turn: OpenTurn, closing: FinishTurn) -> AppendResult:
        ask = self._db.ask(turn.scope, turn.session.id)
        trace = None if closing.trace is None else encode_trace(closing.trace)
        try:
            return await self._db.write(_turns.finish, ask, turn, closing, _log.encode_bodies(closing.reply), trace)
        except SessionCorrupt:
            raise TurnLost(turn.session.id, turn.id) from None

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        try:
            return await self._db.write(_turns.renew, self._db.ask(turn.scope, turn.session.id), turn)
        except SessionCorrupt:
            raise TurnLost(turn.session.id, turn.id) from None

    async def append(self, scope: Scope, session_id: str, batch: AppendBatch) -> AppendResult:
        ask = self._db.ask(scope, session_id)
        return await self._db.write(_turns.append, ask, scope, batch, _log.encode_bodies(batch.messages))

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        ask = self._db.ask(scope, session_id)
        return await self._touch_if_due(ask, await self._db.read(_read_session, ask))

    async def messages(self, scope: Scope, session_id: str, page: Page) -> MessagePage:
        ask = self._db.ask(scope, session_id)
        found = await self._db.read(_read_page, ask, page)
        session = await self._touch_if_due(ask, found.session)
        return found if session is found.session else replace(found, session=session)

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        while True:
            try:
                return await self._db.readers.run(_listing.list_sessions, scope, query, self._db.clock())
            except CorruptRow as damage:
                await self._db.quarantine(damage)  # The next look no longer meets it.

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        return await self._db.write(_edits.patch, self._db.ask(scope, session_id), changes)

    async def reset(self, scope: Scope, session_id: str, *, sparing: Sequence[str] = ()) -> Session:
        return await self._db.write(_edits.reset, self._db.ask(scope, session_id), sparing)

    async def fork(self, scope: Scope, session_id: str, forking: ForkRequest) -> Session:
        ask, target = self._db.ask(scope, session_id), self._db.ask(scope, forking.new_id)
        return await self._db.write(_edits.fork, ask, target, forking)

    async def truncate(self, scope: Scope, session_id: str, truncating: Truncation) -> Session:
        return await self._db.write(_edits.truncate, self._db.ask(scope, session_id), truncating)

    async def rewrite(self, scope: Scope, session_id: str, rewriting: Rewrite) -> Session:
        traces = tuple(map(encode_trace, rewriting.traces))
        ask = self._db.ask(scope, session_id)
        return await self._db.write(_edits.rewrite, ask, rewriting, _log.encode_bodies(rewriting.messages), traces)

    async def delete(self, scope: Scope, session_id: str) -> None:
        await self._db.write(_edits.delete, self._db.ask(scope, session_id))

    async def _touch_if_due(self, ask: Ask, session: Session) -> Session:
        moved = session.deadline_after_read(self._db.clock())
        if moved is None:
            return session
        try:
            return await self._db.write(_edits.touch, ask, to_micros(moved))
        except (StoreFull, StoreReadOnly):
            return session  # What can only be read is still read; its deadline stays.


class SqliteTraces:
    """The `TraceStore` port over one SQLite file."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        return await self._db.read(_log.load_trace, self._db.ask(scope, session_id), number)

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        return await self._db.read(_log.load_newest_traces, self._db.ask(scope, session_id), limit, before)


def _read_session(db: sqlite3.Connection, ask: Ask) -> Session:
    return session_of(reach(db.execute, ask))


def _read_page(db: sqlite3.Connection, ask: Ask, page: Page) -> MessagePage:
    return _log.page_of(db.execute, reach(db.execute, ask), page)
