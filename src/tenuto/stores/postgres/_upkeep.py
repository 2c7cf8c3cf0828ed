"""Upkeep of a Postgres schema."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tenuto.model import CompactionResult, EraseResult, RemovedSession, Scope, SessionStats
from tenuto.model.scope import owner_key, session_key, site_key, user_scope
from tenuto.stores.codec import Undecodable, to_micros
from tenuto.stores.paging import BEHIND_ALL, erase_in_batches, first_sites
from tenuto.stores.postgres._client import Row
from tenuto.stores.postgres._database import Database
from tenuto.stores.postgres._ops import clamp, shelf
from tenuto.stores.postgres._rows import to_removed_session, to_state_location
from tenuto.stores.postgres._state import PostgresState

log = logging.getLogger(__name__)

# Sessions erased in one transaction, which must end well within a call's timeout.
_ERASED_AT_ONCE = 50
_VACUUMED = "removed rows stay in the tables' files until their space is used again: VACUUM FULL clears them"
_UNVACUUMED = "tables of another role were passed over: their owner has to vacuum them"


class PostgresUpkeep:
    """The `StoreUpkeep` port over a Postgres schema."""

    def __init__(self, database: Database, state: PostgresState) -> None:
        self._db = database
        self._state = state

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        now = to_micros(self._db.clock())
        return await self._remove_sessions("SELECT * FROM sweep_sessions($1, $2, $3)", now, clamp(limit))

    async def evict(self, scope: Scope, keep: int, keep_session: str | None = None) -> tuple[RemovedSession, ...]:
        spared = None if keep_session is None else session_key(scope, keep_session)
        return await self._remove_sessions(
            "SELECT * FROM evict_sessions($1, $2, $3, $4)", site_key(scope), clamp(keep), spared
        )

    async def erase(self, scope: Scope, limit: int = 100) -> EraseResult:
        person = user_scope(scope)
        return await erase_in_batches(lambda size: self._erase_batch(person, size), limit, _ERASED_AT_ONCE)

    async def list_sites(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        behind, now = b"" if after is None else site_key(after), to_micros(self._db.clock())
        while True:
            rows = await self._db.link.fetch("SELECT * FROM list_spaces($1, $2)", behind, clamp(limit))
            heads = [head for row in rows if (head := await self._db.readable(row, now)) is not None]
            # An unreadable one is in quarantine now; the next attempt finds another session of its space.
            if len(heads) == len(rows):
                return first_sites(
                    [*(head.scope for head in heads), *await self._state_owners(behind, clamp(limit))], limit
                )

    async def compact(self) -> CompactionResult:
        """Vacuum the tables. The files hold deleted rows until their space is reused."""
        warned = await self._db.link.work("VACUUM sessions, messages, keyed, marks, state, traces")
        return CompactionResult(cleared=False, remaining_reason=_UNVACUUMED if warned else _VACUUMED)

    async def stats(self, scope: Scope) -> SessionStats:
        row = await self._db.link.row("SELECT * FROM count_sessions($1, $2, $3, $4)", *shelf(scope, self._db.clock()))
        return SessionStats(**{what: int(row[what] or 0) for what in ("sessions", "messages", "tokens", "cost_nanos")})

    async def ping(self) -> None:
        await self._db.link.fetch("SELECT 1")

    async def _remove_sessions(self, statement: str, *args: object) -> tuple[RemovedSession, ...]:
        rows = await self._db.link.fetch(statement, self._db.writer, *args)
        if rows:
            await self._db.wait_for_caches(rows[0]["news"])
        return _to_removed_sessions([row["head"] for row in rows])

    async def _erase_batch(self, person: Scope, size: int) -> EraseResult:
        row = await self._db.link.row(
            "SELECT * FROM erase_owner($1, $2, $3, $4)", self._db.writer, site_key(person), owner_key(person), size
        )
        if row["news"] is not None:
            await self._db.wait_for_caches(row["news"])
        gone = _to_removed_sessions(row["heads"])
        return EraseResult(
            removed_sessions=gone,
            messages=row["messages"],
            traces=row["traces"],
            states=row["states"],
            quarantined=row["quarantined"] + len(row["heads"]) - len(gone),
            more=row["more"],
        )

    async def _state_owners(self, behind: bytes, limit: int) -> tuple[Scope, ...]:
        """One user or chat with state of each space after `behind`, in order of their keys."""
        found: list[Scope] = []
        while (wanted := limit - len(found)) > 0:
            rows = await self._db.link.fetch("SELECT * FROM list_state_spaces($1, $2)", behind, wanted)
            for row in rows:
                # If the first location cannot be read, use another one.
                first = to_state_location(row)
                names = [first] if first else await self._state.names(row["space"], (b"", b"", b""), BEHIND_ALL, 1)
                found += [name.scope for name in names]
            if len(rows) < wanted:
                break
            behind = rows[-1]["space"]
        return tuple(found)


def _to_removed_sessions(heads: Sequence[Row]) -> tuple[RemovedSession, ...]:
    """Heads that were removed, except those whose owner cannot be read."""
    removed = []
    for head in heads:
        try:
            removed.append(to_removed_session(head))
        except Undecodable:
            log.warning("removed a session whose owner could not be read: record %d", head["ref"])
    return tuple(removed)
