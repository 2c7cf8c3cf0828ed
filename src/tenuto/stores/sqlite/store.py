"""The `Store` port over one SQLite file."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Concatenate, Final, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from tenuto.errors import InvalidSetting, SessionCorrupt, StoreFull, StoreReadOnly, TurnLost, Unavailable
from tenuto.model import (
    Appended,
    Batch,
    Changes,
    Closing,
    Compaction,
    Erased,
    Forking,
    Gone,
    MessagePage,
    Opening,
    OpenTurn,
    Page,
    Rewriting,
    Scope,
    Session,
    SessionPage,
    SessionQuery,
    StateEntry,
    StateName,
    Stats,
    Truncating,
)
from tenuto.model.news import News
from tenuto.model.scope import owner_key, person_of, session_key, state_key
from tenuto.model.trace import Trace
from tenuto.model.values import Json, checked_id, checked_json
from tenuto.ports import Clock, utc_now
from tenuto.stores.codec import encode_trace, to_micros
from tenuto.stores.erasing import in_steps
from tenuto.stores.sqlite import _edits, _erasing, _shelves, _state, _traces, _turns
from tenuto.stores.sqlite._faults import Damaged
from tenuto.stores.sqlite._feed import Feed
from tenuto.stores.sqlite._file import Synchronous, checked_path, compact, open_file
from tenuto.stores.sqlite._heads import Ask, asked, reach
from tenuto.stores.sqlite._log import encoded, page_of
from tenuto.stores.sqlite._readers import Readers
from tenuto.stores.sqlite._rows import session_of
from tenuto.stores.sqlite._writer import Transaction, Writer

_logger = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")

# Upkeep removes this many sessions in one transaction, so that turns need not wait long for it.
_UPKEEP_STRIDE: Final = 50


class SqliteStore:
    """Sessions and state in one file; several processes may open it at once.

    One thread writes and commits together what has queued up; a few others read. Acknowledged means on disk, unless
    `synchronous="normal"`: then it survives the death of the process, but not of the machine.
    """

    def __init__(self, *, path: Path, clock: Clock, writer: Writer, readers: Readers, feed: Feed) -> None:
        self.path: Final = path
        self._clock = clock
        self._writer = writer
        self._readers = readers
        self._feed = feed

    @classmethod
    async def open(
        cls,
        path: str | Path,
        *,
        clock: Clock = utc_now,
        synchronous: Synchronous = "full",
        readers: int = 2,
        patience: timedelta = timedelta(seconds=5),
        reading_only: bool = False,
    ) -> SqliteStore:
        """Open the file, and create it, for its owner alone, where there is none.

        `patience` is how long a call waits for other processes' locks before it is `Unavailable`. Whoever is
        `reading_only`, and for a moment, may also open a file that lies where nothing can be written.

        Raises:
            InvalidSetting: the path or another setting cannot be right, or the file is not ours to read.
            Unavailable: the file cannot be opened now.
        """
        if synchronous not in ("full", "normal"):
            raise InvalidSetting("synchronous", "it is neither 'full' nor 'normal'")
        if readers < 1:
            raise InvalidSetting("readers", "it is below 1")
        file = checked_path(path)
        writing, *reading = await asyncio.to_thread(open_file, file, synchronous, readers, patience, reading_only)
        writer = Writer(writing, patience, brief=_turns.BRIEF)
        return cls(path=file, clock=clock, writer=writer, readers=Readers(reading), feed=Feed(file))

    async def __aenter__(self) -> SqliteStore:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Finish what is queued and let go of the file."""
        self._feed.close()
        await self._readers.close()
        await self._writer.close()

    # Turns

    async def begin_turn(self, scope: Scope, opening: Opening) -> OpenTurn:
        ask = self._ask(scope, opening.session_id)
        return await self._write(_turns.begin, ask, scope, opening, encoded(opening.words))

    async def finish_turn(self, turn: OpenTurn, closing: Closing) -> Appended:
        ask = self._ask(turn.scope, turn.session.id)
        trace = None if closing.trace is None else encode_trace(closing.trace)
        try:
            return await self._write(_turns.finish, ask, turn, closing, encoded(closing.reply), trace)
        except SessionCorrupt:
            raise TurnLost(turn.session.id, turn.id) from None

    async def renew_turn(self, turn: OpenTurn) -> OpenTurn:
        try:
            return await self._write(_turns.renew, self._ask(turn.scope, turn.session.id), turn)
        except SessionCorrupt:
            raise TurnLost(turn.session.id, turn.id) from None

    async def append(self, scope: Scope, session_id: str, batch: Batch) -> Appended:
        ask = self._ask(scope, session_id)
        return await self._write(_turns.append, ask, scope, batch, encoded(batch.messages))

    # Reading

    async def get(self, scope: Scope, session_id: str) -> Session:
        ask = self._ask(scope, session_id)
        return await self._touched(ask, await self._read(_session, ask))

    async def messages(self, scope: Scope, session_id: str, page: Page) -> MessagePage:
        ask = self._ask(scope, session_id)
        found = await self._read(_messages, ask, page)
        session = await self._touched(ask, found.session)
        return found if session is found.session else replace(found, session=session)

    async def list(self, scope: Scope, query: SessionQuery) -> SessionPage:
        while True:
            try:
                return await self._readers.run(_shelves.page_of_sessions, scope, query, self._clock())
            except Damaged as damage:
                await self._set_aside(damage)  # The next look no longer meets it.

    # Changing

    async def patch(self, scope: Scope, session_id: str, changes: Changes) -> Session:
        return await self._write(_edits.patch, self._ask(scope, session_id), changes)

    async def reset(self, scope: Scope, session_id: str, *, sparing: Sequence[str] = ()) -> Session:
        return await self._write(_edits.reset, self._ask(scope, session_id), sparing)

    async def fork(self, scope: Scope, session_id: str, forking: Forking) -> Session:
        ask, target = self._ask(scope, session_id), self._ask(scope, forking.new_id)
        return await self._write(_edits.fork, ask, target, forking)

    async def truncate(self, scope: Scope, session_id: str, truncating: Truncating) -> Session:
        return await self._write(_edits.truncate, self._ask(scope, session_id), truncating)

    async def rewrite(self, scope: Scope, session_id: str, rewriting: Rewriting) -> Session:
        traces = tuple(map(encode_trace, rewriting.traces))
        ask = self._ask(scope, session_id)
        return await self._write(_edits.rewrite, ask, rewriting, encoded(rewriting.messages), traces)

    async def delete(self, scope: Scope, session_id: str) -> None:
        await self._write(_edits.delete, self._ask(scope, session_id))

    # Traces

    async def trace(self, scope: Scope, session_id: str, number: int) -> Trace | None:
        return await self._read(_traces.one, self._ask(scope, session_id), number)

    async def traces(
        self, scope: Scope, session_id: str, limit: int = 20, before: int | None = None
    ) -> tuple[Trace, ...]:
        return await self._read(_traces.newest, self._ask(scope, session_id), limit, before)

    # State

    async def read_state(self, scope: Scope, namespace: str, key: str) -> StateEntry | None:
        return await self._readers.run(_state.read, state_key(scope, namespace), key)

    async def write_state(
        self, scope: Scope, namespace: str, key: str, value: Json, if_version: int | None = None
    ) -> StateEntry:
        checked_id(key, "the state key")
        checked_json(value, "the state value")
        raw = msgspec.json.encode(value)
        version = await self._writer.run(_state.write, _state.drawer_of(scope, namespace), key, raw, if_version)
        return StateEntry(key=key, value=value, version=version)

    async def delete_state(self, scope: Scope, namespace: str, key: str) -> bool:
        return await self._writer.run(_state.delete, state_key(scope, namespace), key)

    async def list_state(
        self, scope: Scope, namespace: str, after: str = "", limit: int = 100
    ) -> tuple[StateEntry, ...]:
        return await self._readers.run(_state.listed, state_key(scope, namespace), after, limit)

    async def state_keys(self, scope: Scope, namespace: str, after: str = "", limit: int = 100) -> tuple[str, ...]:
        return await self._readers.run(_state.listed_keys, state_key(scope, namespace), after, limit)

    async def state_names(
        self, scope: Scope, after: StateName | None = None, limit: int = 100
    ) -> tuple[StateName, ...]:
        return await self._readers.run(_state.names, scope, after, limit)

    # Upkeep

    async def sweep(self, limit: int = 1000) -> tuple[Gone, ...]:
        gone: tuple[Gone, ...] = ()
        while len(gone) < limit:
            stride = min(_UPKEEP_STRIDE, limit - len(gone))
            looked_at, removed = await self._writer.run(_shelves.sweep, stride, to_micros(self._clock()))
            gone += removed
            if looked_at < stride:
                break
        return gone

    async def evict(self, scope: Scope, keep: int, sparing: str | None = None) -> tuple[Gone, ...]:
        spared = None if sparing is None else session_key(scope, sparing)
        gone: tuple[Gone, ...] = ()
        for _ in range(0, await self._readers.run(_shelves.excess, scope, keep), _UPKEEP_STRIDE):
            now = to_micros(self._clock())
            gone += await self._writer.run(_shelves.evict, scope, keep, spared, _UPKEEP_STRIDE, now)
        return gone

    async def erase(self, scope: Scope, limit: int = 100) -> Erased:
        owner = owner_key(person_of(scope))
        return await in_steps(lambda size: self._writer.run(_erasing.erase, owner, size), limit, _UPKEEP_STRIDE)

    async def spaces(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        while True:
            try:
                return await self._readers.run(_shelves.spaces, after, limit)
            except Damaged as damage:
                await self._set_aside(damage)  # As in `list`.

    async def compact(self) -> Compaction:
        """Write the file anew and empty its log. Writes wait meanwhile, and it takes the file's size on the disk."""
        await self._writer.run_alone(compact)
        return Compaction(cleared=True)

    async def stats(self, scope: Scope) -> Stats:
        return await self._readers.run(_shelves.counted, scope, self._clock())

    async def ping(self) -> None:
        await self._readers.run(_ping)

    # Changes

    @property
    def listening(self) -> bool:
        return self._feed.listening

    def watch(self, told: Callable[[News | None], None]) -> AbstractAsyncContextManager[None]:
        return self._feed.watch(told)

    def catch_up(self) -> bool:
        return self._feed.catch_up()

    # What the methods share

    def _ask(self, scope: Scope, session_id: str) -> Ask:
        return asked(scope, session_id, self._clock())

    async def _write(self, step: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a step; a damaged record that it meets is set aside before the caller hears of it."""
        try:
            return await self._writer.run(step, *args, **kwargs)
        except Damaged as damage:
            await self._try_to_set_aside(damage)
            raise

    async def _read(
        self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        try:
            return await self._readers.run(step, *args, **kwargs)
        except Damaged as damage:
            await self._try_to_set_aside(damage)
            raise

    async def _try_to_set_aside(self, damage: Damaged) -> None:
        try:
            await self._set_aside(damage)
        except Unavailable:
            # The file may be full or read-only. The caller's answer is the same, and the next call tries again.
            _logger.warning("a damaged session (row %d) could not be set aside", damage.row)

    async def _set_aside(self, damage: Damaged) -> None:
        now = to_micros(self._clock())
        await self._writer.run(_edits.set_aside, damage.row, damage.session_id, damage.reason, now)

    async def _touched(self, ask: Ask, session: Session) -> Session:
        moved = session.read_deadline(self._clock())
        if moved is None:
            return session
        try:
            return await self._write(_edits.touch, ask, to_micros(moved))
        except (StoreFull, StoreReadOnly):
            return session  # What can only be read is still read; its deadline stays.


def _session(db: sqlite3.Connection, ask: Ask) -> Session:
    return session_of(reach(db.execute, ask))


def _messages(db: sqlite3.Connection, ask: Ask, page: Page) -> MessagePage:
    return page_of(db.execute, reach(db.execute, ask), page)


def _ping(db: sqlite3.Connection) -> None:
    db.execute("SELECT 1 FROM session LIMIT 1").fetchone()
