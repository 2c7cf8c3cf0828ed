"""Records in a Postgres schema: one function of the server for a batch of commits, one for a batch of loads.

Acknowledged means committed, as durable as the server's `synchronous_commit` makes it. Row-level security is a second
wall between tenants; it binds every role but superusers and those with BYPASSRLS.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, Self, TypeAlias

from tenuto.model import CompactionResult, Scope
from tenuto.model.scope import site_scope
from tenuto.model.store_reports import DurabilityFinding
from tenuto.model.stored import (
    OWNER_BYTES,
    AsideRecords,
    EntryPage,
    FoundRecord,
    IndexColumns,
    IndexOrder,
    IndexQuery,
    Kind,
    Known,
    Part,
    RecordChange,
    Refused,
    StoredRecord,
    Totals,
    ValuePlace,
)
from tenuto.stores.columns import decode_scope, refuse_damaged
from tenuto.stores.postgres._batches import Batches
from tenuto.stores.postgres._client import ConnectionPool, Row
from tenuto.stores.postgres._feed import PostgresFeed, wait_for_caches
from tenuto.stores.postgres._rows import (
    COMMIT_HEADS,
    STRICT_NTH,
    change_argument,
    head_arguments,
    is_plain,
    is_strict,
    to_entries,
    to_found,
    to_literal,
    to_record,
    weigh,
    weigh_all,
)
from tenuto.stores.postgres._schema import migrate, warn_if_rls_bypassed
from tenuto.stores.postgres._turns import Turns

Load: TypeAlias = tuple[bytes, int, int, int]
"""The key, how many messages, and beyond which message and page of keys."""

_VACUUMED: Final = "removed rows stay in the tables' files until their room is used again: VACUUM FULL clears them"
_UNVACUUMED: Final = "tables of another role were passed over: their owner has to vacuum them"
_LOAD: Final = "SELECT * FROM load_records($1, $2::text::bigint[], $3::text::bigint[], $4::text::bigint[])"
_UNKNOWN_KIND: Final = f"kind NOT IN ({', '.join(repr(kind.value) for kind in Kind)})"
_ORDERS: Final = {
    IndexOrder.NEWEST: ("listed_at DESC, key DESC", "(listed_at, key) < (($1).behind, ($1).behind_key)"),
    IndexOrder.OLDEST: ("listed_at, key", "(listed_at, key) > (($1).behind, ($1).behind_key)"),
    IndexOrder.DEADLINE: ("deadline, key", "(deadline, key) > (($1).behind, ($1).behind_key)"),
    IndexOrder.PLACE: ("owner, drawer, name_start, name", ""),
}


class PostgresRecords:
    """The `RecordStore` port over a schema of its own.

    What a change takes back (a session removed, messages cut or rewritten) is served by no cache once the commit is
    acknowledged; of all else a feed can be behind by the time that a notification takes from the server to the socket.
    """

    def __init__(self, pool: ConnectionPool, *, batches: int) -> None:
        self.pool = pool
        self.feed = PostgresFeed(pool)
        opened = partial(Batches, width=batches, timeout=pool.timeout)
        self._turns = Turns(pool)
        self._heads: Batches[RecordChange, Refused | None] = opened(self._send_heads, weigh=weigh)
        self._changes: Batches[Sequence[RecordChange], Refused | None] = opened(self._send_changes, weigh=weigh_all)
        # A listener that hangs delays these, and no others.
        self._strict: Batches[Sequence[RecordChange], Refused | None] = opened(self._send_changes, weigh=weigh_all)
        self._loads: Batches[Load, StoredRecord | None] = opened(self._send_loads, is_read=True)
        self._touches: Batches[tuple[bytes, int], None] = opened(self._send_touches, is_read=True)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        schema: str = "tenuto",
        connections: int = 8,
        batches: int = 2,
        timeout: timedelta = timedelta(seconds=5),
        connect_timeout: timedelta = timedelta(seconds=5),
        prepare: bool = True,
    ) -> Self:
        """Connect and migrate the schema, unless `prepare` is called later.

        `connections` bounds the pool, `batches` the concurrent batches of a kind. The timeouts hold for each call: one
        to get a connection, one for the reply.

        Raises:
            Unavailable: no server answers, or its schema is of a later release.
        """
        pool = ConnectionPool(
            url,
            schema=schema,
            connections=connections,
            timeout=timeout.total_seconds(),
            connect_timeout=connect_timeout.total_seconds(),
        )
        records = cls(pool, batches=batches)
        if prepare:
            await records.prepare()
        return records

    async def prepare(self) -> None:
        """Migrate the schema. Raises `Unavailable`."""
        await self.pool.prepare(migrate, warn_if_rls_bypassed)

    # One record

    def load(self, key: bytes, tail: int, known: Known | None = None) -> Future[StoredRecord | None]:
        return self._loads.add(_load(key, tail, known or Known()))

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        if len(changes) == 1 and is_plain(changes[0]):
            if self._turns.are_due(changes[0].key):
                return self._turns.commit(changes[0])
            return self._heads.add(changes[0])
        return (self._strict if any(map(is_strict, changes)) else self._changes).add(changes)

    def page(self, key: bytes, part: Part, first: int, last: int, limit: int) -> Future[EntryPage]:
        return asyncio.ensure_future(self._page(key, part, first, last, limit))

    def touch(self, key: bytes, deadline: int) -> Future[None]:
        return self._touches.add((key, deadline))

    async def load_all(self, keys: Sequence[bytes]) -> tuple[StoredRecord | None, ...]:
        return tuple(await self._send_loads([_load(key, 0, Known()) for key in keys])) if keys else ()

    async def _send_heads(self, changes: Sequence[RecordChange]) -> list[Refused | None]:
        order = sorted(range(len(changes)), key=lambda nth: changes[nth].key)
        rows = await self.pool.fetch(COMMIT_HEADS, *head_arguments([changes[nth] for nth in order]))
        answers: list[Refused | None] = [None] * len(changes)
        for row in rows:
            answers[order[row["nth"] - 1]] = Refused(standing=(to_record(row),))
            self._turns.mark(row["key"])
        return answers

    async def _send_changes(self, commits: Sequence[Sequence[RecordChange]]) -> list[Refused | None]:
        order = sorted(range(len(commits)), key=lambda nth: commits[nth][0].key)
        owners = [nth for nth in order for _ in commits[nth]]
        changes = [change_argument(nth, change) for nth in order for change in commits[nth]]
        standing: dict[int, list[StoredRecord | None]] = {}
        moved: set[int] = set()
        for row in sorted(await self.pool.fetch("SELECT * FROM commit_changes($1)", changes), key=_nth):
            if (nth := row["nth"]) > STRICT_NTH:
                standing.setdefault(owners[nth - 1], []).append(to_record(row))
            elif nth < STRICT_NTH:
                moved.add(owners[-nth - 1])
            else:
                await wait_for_caches(self.pool, row["revision"])
        return [
            Refused(standing=tuple(standing[nth]), source_changed=nth in moved) if nth in standing else None
            for nth in range(len(commits))
        ]

    async def _send_loads(self, loads: Sequence[Load]) -> list[StoredRecord | None]:
        keys, *numbers = zip(*loads, strict=True)
        rows = await self.pool.fetch(_LOAD, keys, *map(to_literal, numbers))
        return [to_record(row) for row in sorted(rows, key=_nth)]

    async def _send_touches(self, touches: Sequence[tuple[bytes, int]]) -> Sequence[None]:
        order = sorted(touches)
        await self.pool.fetch("SELECT touch_records($1, $2)", *zip(*order, strict=True))
        return [None] * len(touches)

    async def _page(self, key: bytes, part: Part, first: int, last: int, limit: int) -> EntryPage:
        rows = await self.pool.fetch("SELECT * FROM page_entries($1, $2, $3, $4, $5)", key, part, first, last, limit)
        if not rows:
            return EntryPage(revision=0)
        revision, numbers, bodies = rows[0]
        entries = to_entries(part, numbers, bodies)
        return EntryPage(revision=revision, entries=entries if limit >= 0 else entries[::-1])

    # Many records

    async def list(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        ordering, beyond = _ORDERS[query.order]
        fields = {"space": query.space, "owner": query.owner, "drawer": query.drawer, "status": query.status}
        kind = _UNKNOWN_KIND if query.kind is None else f"kind = '{query.kind.value}'"
        conditions = [kind, "key IS NOT NULL"]
        conditions += [f"{name} = ($1).{name}" for name, value in fields.items() if value is not None]
        if query.space is None and query.owner is not None:
            conditions.append("space = ($1).space")
        if query.title is not None:
            conditions.append("position(($1).title IN title) > 0")
        if query.named:
            conditions.append("scope IS NOT NULL")
        if query.order is IndexOrder.DEADLINE:
            conditions.append("deadline IS NOT NULL")
        words = list[bytes]()
        for group in query.words:
            of_owner = "" if query.owner is None else f" AND words.owner = substr(($1).owner, 1, {OWNER_BYTES})"
            wanted = f"words.word = ANY (($1).words[{len(words) + 1}:{len(words) + len(group)}]){of_owner}"
            found = f"SELECT words.record FROM words WHERE words.space = ($1).space AND {wanted}"  # noqa: S608
            conditions.append(f"id IN ({found})")
            words += group
        if query.due is not None:
            conditions.append("due <= ($1).due AND deadline <= ($1).due")
        if query.behind is not None:
            conditions.append(beyond or _behind_place(query))
        place = query.behind if isinstance(query.behind, ValuePlace) else (None, None, None)
        behind = (None, None) if query.behind is None or isinstance(query.behind, ValuePlace) else query.behind
        values = (*fields.values(), query.title, query.due, *behind, *place, words, max(0, query.limit))
        return await self._find(values, " AND ".join(conditions), ordering)

    async def totals(self, space: bytes, owner: bytes | None, now: int) -> Totals:
        row = await self.pool.fetch_row("SELECT * FROM sum_records($1, $2, $3)", space, owner, now)
        return Totals(**row)

    async def sites(self, after: bytes, limit: int) -> tuple[Scope, ...]:
        found: list[Scope] = []
        while (wanted := limit - len(found)) > 0:
            rows = await self.pool.fetch("SELECT * FROM list_scopes($1, $2)", after, wanted)
            scopes = [decode_scope(row["scope"], row["space"]) for row in rows]
            found += [site_scope(scope) for scope in scopes if scope is not None]
            if len(rows) < wanted:
                break
            after = rows[-1]["space"]
        return tuple(found)

    async def scan(self, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
        values = (*[None] * 7, after, *[None] * 4, max(0, limit))
        return refuse_damaged(await self._find(values, "key > ($1).behind_key", "key"))

    async def _find(self, values: tuple[Any, ...], conditions: str, ordering: str) -> tuple[FoundRecord, ...]:
        rows = await self.pool.fetch("SELECT * FROM find_records($1, $2, $3)", values, conditions, ordering)
        return tuple([to_found(row) for row in rows])

    async def list_aside(self) -> tuple[IndexColumns, ...]:
        found = await self._find((None,) * 13, "aside IS NOT NULL", "id")
        return tuple([one.index for one in found])

    async def forget_aside(self, owner: bytes) -> AsideRecords:
        return AsideRecords(**await self.pool.fetch_row("SELECT * FROM forget_aside($1)", owner))

    async def compact(self) -> CompactionResult:
        """Vacuum the tables. The files hold deleted rows until their space is reused."""
        warned = await self.pool.run_long("VACUUM records, entries, words")
        return CompactionResult(cleared=False, remaining_reason=_UNVACUUMED if warned else _VACUUMED)

    async def durability_findings(self) -> tuple[DurabilityFinding, ...]:
        row = await self.pool.fetch_row(
            "SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS waits"
        )
        message, advice = f"fsync {row['fsync']}, synchronous_commit {row['waits']}", None
        if row["fsync"] != "on":
            advice = "a power failure may corrupt the whole database; set fsync on"
        elif row["waits"] == "off":
            advice = "a crash of the server may lose the last turns; set synchronous_commit on to keep them"
        else:
            message += ": every acknowledged turn is on disk"
        return (DurabilityFinding(name="durability", message=message, advice=advice),)

    async def ping(self) -> None:
        await self.pool.fetch("SELECT 1")

    async def product_version(self) -> str:
        row = await self.pool.fetch_row("SELECT current_setting('server_version') AS version")
        return f"PostgreSQL {row['version'].split()[0]}"

    async def close(self) -> None:
        for batches in (self._heads, self._changes, self._strict, self._loads, self._touches):
            await batches.close()
        await self._turns.close()
        await self.pool.close()


def _behind_place(query: IndexQuery) -> str:
    """Values behind one in order of place; the index has the start of names alone."""
    # Columns that are the same for all are not compared: the index would be entered at the first name that has them.
    given = 0 if query.owner is None else 1 if query.drawer is None else 2
    columns, starts = ("owner", "drawer")[given:], ("($1).behind_owner", "($1).behind_drawer")[given:]
    in_index = f"({', '.join((*columns, 'name_start'))}) >= ({', '.join((*starts, 'left(($1).behind_name, 200)'))})"
    return f"{in_index} AND ({', '.join((*columns, 'name'))}) > ({', '.join((*starts, '($1).behind_name'))})"


def _load(key: bytes, tail: int, known: Known) -> Load:
    return key, tail, known.message, known.page


def _nth(row: Row) -> int:
    nth: int = row["nth"]
    return nth
