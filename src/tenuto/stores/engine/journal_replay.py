"""Replay: the rows of a folder on their way into the store, oldest first, each session by one process at a time.

A row whose messages are in the log already was stored before. One that the store can never take is quarantined, logged
and counted; one of an erased user is removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

from tenuto.errors import (
    DecryptionFailed,
    MasterKeyMissing,
    SessionElsewhere,
    SessionNotFound,
    StoreUnavailable,
    Unavailable,
)
from tenuto.model import Scope, StateEntry
from tenuto.ports import Clock
from tenuto.stores.encoding import Undecodable, to_micros
from tenuto.stores.engine import rules
from tenuto.stores.engine.cache import RecordCache
from tenuto.stores.engine.codec import Codec, UnknownFormat
from tenuto.stores.engine.journal_folder import ALWAYS, JournalFolder, StoredRow
from tenuto.stores.engine.journal_rows import Row, Unplaceable, decode_row, encode_base, replay_row
from tenuto.stores.engine.lane import Rule

_log = logging.getLogger(__name__)
ERASURES: Final = "erasures"
"""The namespace of a site's state with the erased users and times, for the journals of other machines."""

# By how much the clocks of two machines may differ: turns that begin sooner after an erasure are dropped.
_CLOCKS_DIFFER: Final = timedelta(minutes=5)
_AT_ONCE: Final = 16
_WAIT: Final = 3.0
_PAUSE: Final = 0.05

Queue = Callable[[Scope, bytes, str, Rule[Any]], Awaitable[Any]]


class ReadsState(Protocol):
    """The part of a `StateStore` that tells of erased users."""

    async def read_states(self, scope: Scope, namespace: str, keys: Sequence[str]) -> tuple[StateEntry | None, ...]:
        """Values by their keys."""
        ...


class CodecOf(Protocol):
    """Awaits the codec of a tenant's site."""

    async def __call__(self, scope: Scope, *, refresh: bool = False) -> Codec: ...


class Replay:
    """Stores what waits. `queue` puts a rule on the lane of a session."""

    def __init__(
        self,
        folder: JournalFolder,
        cache: RecordCache,
        state: ReadsState,
        *,
        clock: Clock,
        codec: CodecOf,
        queue: Queue,
        sharded: bool = False,
    ) -> None:
        self._folder = folder
        self._sharded = sharded
        self._cache = cache
        self._state = state
        self._clock = clock
        self._codec = codec
        self._queue = queue
        self.replayed = 0
        """How many turns this process has stored."""

    async def all(self) -> None:
        """Store all rows, as far as the store answers; several sessions at a time, each in its order."""
        keys = iter(await self._folder.fenced_keys())
        await asyncio.gather(*[self._each(keys) for _ in range(_AT_ONCE)])

    async def _each(self, keys: Iterator[bytes]) -> None:
        for key in keys:
            try:
                await self.session(key, timeout=0.0)
            except SessionElsewhere:
                continue  # Another process does.
            except StoreUnavailable:
                if self._folder.is_down or not self._sharded:
                    return
                # The server of this session is down; those of others answer.
            except Unavailable as error:
                _log.warning("journaled turns of a session wait on: %s", error.code)
            except Exception:
                # The next sessions are stored whatever this one met.
                _log.exception("journaled turns of a session cannot be stored yet")

    async def session(self, key: bytes, *, timeout: float = _WAIT) -> None:
        """Store the rows of a session, or wait until the process that does has stored them.

        Raises:
            SessionElsewhere: it has not by now.
            Unavailable: the store does not answer, or the rows cannot be read.
        """
        loop, folder = asyncio.get_running_loop(), self._folder
        until = loop.time() + timeout
        while (session := await folder.read_session(key)) is not None and session.rows:
            if await folder.lock(key):
                try:
                    await self._store(key)
                finally:
                    await folder.unlock(key)
            elif loop.time() >= until:
                raise SessionElsewhere
            else:
                await asyncio.sleep(_PAUSE)
            if folder.is_down:
                raise StoreUnavailable

    async def _store(self, key: bytes) -> None:
        """Store the rows of a session that this process has locked."""
        session = await self._folder.read_session(key)
        if session is not None and await self.remove_erased(
            session.site, sorted({user for row in session.rows for user in row.users})
        ):
            session = await self._folder.read_session(key)
        if session is None:
            return
        turn: str | None = None
        unplaceable = set[str]()
        for stored in session.rows:
            if stored.turn in unplaceable:
                continue
            try:
                row = await self._store_row(key, stored, session.site)
            except Unplaceable as error:
                # What follows in the turn has no place either.
                unplaceable.add(stored.turn)
                for other in session.rows:
                    if other.turn == stored.turn and other.number >= stored.number:
                        await self.set_aside(key, other, error.reason)
                continue
            if row is not None:
                # Each by itself: a cap may evict its messages with the next one, and they could not be recognised.
                await self._remove(key, row, session.site)
                self.replayed += stored.turn != turn
                turn = stored.turn

    async def _store_row(self, key: bytes, stored: StoredRow, site: Scope) -> Row | None:
        """Store a row; `None` if it is torn, and quarantined. Raises `Unplaceable`."""
        row = await self._decode(key, stored, site)
        if row is not None:
            await self._queue(
                row.command.scope, key, row.command.session_id, lambda record, now: replay_row(record, row)
            )
        return row

    async def _decode(self, key: bytes, stored: StoredRow, site: Scope) -> Row | None:
        """A row; one that does not open is tried with fresh keys, since another process may have added one."""
        reason = "decryption_failed"
        for refresh in (False, True):
            try:
                return decode_row(key, stored, await self._codec(site, refresh=refresh))
            except UnknownFormat as error:
                raise Unavailable("journal", "has turns that a newer release wrote") from error
            except MasterKeyMissing:
                raise  # With the key it can be stored.
            except DecryptionFailed:
                continue
            except Undecodable:
                reason = "torn"
                break
        await self.set_aside(key, stored, reason)
        return None

    async def set_aside(self, key: bytes, row: StoredRow, reason: str) -> None:
        """Quarantine a row that the store can never take."""
        _log.warning("a journaled turn was quarantined: %s", reason)
        await self._folder.set_aside(key, row, reason, to_micros(self._clock()))

    async def _remove(self, key: bytes, row: Row, site: Scope) -> None:
        """Remove a row that is stored; the others go on from the record that has it."""
        scope, session_id = row.command.scope, row.command.session_id
        record = self._cache.get(key)
        if record is None:
            try:
                record = await self._queue(
                    scope, key, session_id, lambda found, now: rules.read_record(found, scope, session_id, now)
                )
            except SessionNotFound:
                record = None
        await self._folder.remove(key, row.number, encode_base(key, record, await self._codec(site)))

    async def remove_erased(self, site: Scope, users: Sequence[str]) -> int:
        """Remove the rows of those users of a site that were erased since, on any machine, quarantined ones too."""
        entries = await self._state.read_states(site, ERASURES, users) if users else ()
        removed = 0
        for user, entry in zip(users, entries, strict=True):
            if entry is not None:
                removed += await self._folder.erase(site, user, _erased_until(entry.value))
        return removed


def _erased_until(at: Any) -> int:
    """Up to when rows are of the time before an erasure. A time that cannot be read counts as now."""
    return at + _CLOCKS_DIFFER // timedelta(microseconds=1) if isinstance(at, int) else ALWAYS
