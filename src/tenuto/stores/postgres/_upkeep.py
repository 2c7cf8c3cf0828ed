"""What keeps a Postgres schema in shape."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tenuto.model import Compaction, Erased, Gone, Scope, Stats
from tenuto.model.scope import owner_key, person_of, session_key, space_key
from tenuto.stores.codec import Undecodable, to_micros
from tenuto.stores.erasing import in_steps
from tenuto.stores.naming import BEHIND_ALL, in_order
from tenuto.stores.postgres._database import Database
from tenuto.stores.postgres._link import Row
from tenuto.stores.postgres._ops import clamped, shelf
from tenuto.stores.postgres._rows import gone_of, name_of
from tenuto.stores.postgres._state import PostgresState

log = logging.getLogger(__name__)

# An erasure removes this many sessions in one transaction, which must end well within a call's time.
_ERASED_AT_ONCE = 50
_VACUUMED = "removed rows stay in the tables' files until their room is used again: VACUUM FULL clears them"
_UNVACUUMED = "tables of another role were passed over: their owner has to vacuum them"


class PostgresUpkeep:
    """The `StoreUpkeep` port over a Postgres schema."""

    def __init__(self, database: Database, state: PostgresState) -> None:
        self._db = database
        self._state = state

    async def sweep(self, limit: int = 1000) -> tuple[Gone, ...]:
        now = to_micros(self._db.clock())
        return await self._gone("SELECT * FROM sweep_sessions($1, $2, $3)", now, clamped(limit))

    async def evict(self, scope: Scope, keep: int, sparing: str | None = None) -> tuple[Gone, ...]:
        spared = None if sparing is None else session_key(scope, sparing)
        return await self._gone("SELECT * FROM evict_sessions($1, $2, $3, $4)", space_key(scope), clamped(keep), spared)

    async def erase(self, scope: Scope, limit: int = 100) -> Erased:
        person = person_of(scope)
        return await in_steps(lambda size: self._erase(person, size), limit, _ERASED_AT_ONCE)

    async def spaces(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        behind, now = b"" if after is None else space_key(after), to_micros(self._db.clock())
        while True:
            rows = await self._db.link.fetch("SELECT * FROM list_spaces($1, $2)", behind, clamped(limit))
            heads = [head for row in rows if (head := await self._db.readable(row, now)) is not None]
            # One that could not be read is set aside by now, and the next look meets another one of its space.
            if len(heads) == len(rows):
                return in_order([*(head.scope for head in heads), *await self._keeping(behind, clamped(limit))], limit)

    async def compact(self) -> Compaction:
        """Let the tables' dead rows go. Their room is used again, and until then the files still hold their bytes."""
        warned = await self._db.link.work("VACUUM sessions, messages, keyed, marks, state, traces")
        return Compaction(cleared=False, why=_UNVACUUMED if warned else _VACUUMED)

    async def stats(self, scope: Scope) -> Stats:
        row = await self._db.link.row("SELECT * FROM count_sessions($1, $2, $3, $4)", *shelf(scope, self._db.clock()))
        return Stats(**{what: int(row[what] or 0) for what in ("sessions", "messages", "tokens", "cost_nanos")})

    async def ping(self) -> None:
        await self._db.link.fetch("SELECT 1")

    async def _gone(self, statement: str, *args: object) -> tuple[Gone, ...]:
        """What upkeep removed."""
        rows = await self._db.link.fetch(statement, self._db.writer, *args)
        if rows:
            await self._db.wait_for_caches(rows[0]["news"])
        return _all_gone([row["head"] for row in rows])

    async def _erase(self, person: Scope, size: int) -> Erased:
        row = await self._db.link.row(
            "SELECT * FROM erase_owner($1, $2, $3, $4)", self._db.writer, space_key(person), owner_key(person), size
        )
        if row["news"] is not None:
            await self._db.wait_for_caches(row["news"])
        gone = _all_gone(row["heads"])
        return Erased(
            gone=gone,
            messages=row["messages"],
            traces=row["traces"],
            states=row["states"],
            quarantined=row["quarantined"] + len(row["heads"]) - len(gone),
            more=row["more"],
        )

    async def _keeping(self, behind: bytes, limit: int) -> tuple[Scope, ...]:
        """One user or chat that keeps something of each space, from behind one on, in order of their keys."""
        found: list[Scope] = []
        while (wanted := limit - len(found)) > 0:
            rows = await self._db.link.fetch("SELECT * FROM list_state_spaces($1, $2)", behind, wanted)
            for row in rows:
                # Where the first name cannot be read, another one may tell.
                name = name_of(row)
                told = [name] if name else await self._state.names(row["space"], (b"", b"", b""), BEHIND_ALL, 1)
                found += [name.scope for name in told]
            if len(rows) < wanted:
                break
            behind = rows[-1]["space"]
        return tuple(found)


def _all_gone(heads: Sequence[Row]) -> tuple[Gone, ...]:
    """Heads that were removed, but for those of which nobody can tell any more whose they were."""
    told = []
    for head in heads:
        try:
            told.append(gone_of(head))
        except Undecodable:
            log.warning("removed a session whose owner could not be read: record %d", head["ref"])
    return tuple(told)
