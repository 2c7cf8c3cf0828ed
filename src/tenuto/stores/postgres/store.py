"""Sessions in a Postgres database: the rules are functions of the server, one round trip for each call."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Self

from tenuto.model.store_reports import DurabilityFinding
from tenuto.ports import Clock, utc_now
from tenuto.stores.postgres._bulk import PostgresBulk
from tenuto.stores.postgres._client import Link
from tenuto.stores.postgres._database import Database
from tenuto.stores.postgres._feed import PostgresFeed, parse_invalidation
from tenuto.stores.postgres._schema import migrate, warn_if_rls_bypassed
from tenuto.stores.postgres._sessions import PostgresSessions, PostgresTraces
from tenuto.stores.postgres._state import PostgresState
from tenuto.stores.postgres._upkeep import PostgresUpkeep


class PostgresStore:
    """A backend over a Postgres schema of its own.

    Acknowledged means committed, as durable as the server's `synchronous_commit` makes it. Calls of many tasks share
    transactions (`_batcher`). Row-level security is a second wall between tenants; it binds every role but superusers
    and those with BYPASSRLS.

    A cache that calls `catch_up` before each hit can be behind by the time a notification takes from the server to the
    socket. What `delete`, `reset`, `truncate`, `rewrite`, `erase`, `sweep` and `evict` removed is served by no cache
    once they return (see `_feed`).
    """

    omits_known = True

    def __init__(self, link: Link, *, clock: Clock, batches: int) -> None:
        self.link = link
        database = Database(link, clock=clock)
        self.sessions = PostgresSessions(database, batches=batches)
        self.traces = PostgresTraces(database)
        self.state = PostgresState(database)
        self.upkeep = PostgresUpkeep(database, self.state)
        self.bulk = PostgresBulk(database)
        self.feed = PostgresFeed(link.connect, link.schema, partial(parse_invalidation, database.writer))

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        clock: Clock = utc_now,
        schema: str = "tenuto",
        connections: int = 8,
        batches: int = 2,
        timeout: timedelta = timedelta(seconds=5),
        connect_timeout: timedelta = timedelta(seconds=5),
        prepare: bool = True,
    ) -> Self:
        """Connect and migrate the schema, unless `prepare` is called later.

        `connections` bounds the pool, `batches` the concurrent group commits of one kind. The timeouts hold for each
        call: one to get a connection, one for the reply.

        Raises:
            Unavailable: no server answers, or its schema is of a later release.
        """
        link = Link(
            url,
            schema=schema,
            connections=connections,
            timeout=timeout.total_seconds(),
            connect_timeout=connect_timeout.total_seconds(),
        )
        store = cls(link, clock=clock, batches=batches)
        if prepare:
            await store.prepare()
        return store

    async def prepare(self) -> None:
        await self.link.prepare(migrate, warn_if_rls_bypassed)

    async def durability_findings(self) -> tuple[DurabilityFinding, ...]:
        return await assurances(self.link)

    async def product_version(self) -> str:
        row = await self.link.row("SELECT current_setting('server_version') AS version")
        return f"PostgreSQL {row['version'].split()[0]}"

    async def close(self) -> None:
        await self.sessions.close()
        await self.link.close()


async def assurances(link: Link) -> tuple[DurabilityFinding, ...]:
    """The durability of writes of this role. Raises `Unavailable`."""
    row = await link.row("SELECT current_setting('fsync') AS fsync, current_setting('synchronous_commit') AS waits")
    says = f"fsync {row['fsync']}, synchronous_commit {row['waits']}"
    if row["fsync"] != "on":
        return (_finding(says, "a power failure may corrupt the whole database; set fsync on"),)
    if row["waits"] == "off":
        return (
            _finding(says, "a crash of the server may lose the last turns; set synchronous_commit on to keep them"),
        )
    return (_finding(f"{says}: every acknowledged turn is on disk"),)


def _finding(says: str, advice: str | None = None) -> DurabilityFinding:
    return DurabilityFinding(name="durability", message=says, advice=advice)
