"""Connections to one database: few, shared, with a deadline on every call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import asyncpg

from tenuto.errors import InvalidSetting, Unavailable
from tenuto.stores.postgres._faults import DRIVER_ERRORS, STORE, TRANSIENT, fault, telling

log = logging.getLogger(__name__)

# asyncpg's rows are untyped; they become values in `_rows`.
Row: TypeAlias = asyncpg.Record
Connection: TypeAlias = "asyncpg.Connection[Any]"
Lent: TypeAlias = "asyncpg.pool.PoolConnectionProxy[Any]"

# Statements here are short and by key. Tables without statistics yet would lead the planner to scan them, and
# compiling a statement costs more than running it.
_PLANNING: Final = {"jit": "off", "enable_seqscan": "off", "enable_bitmapscan": "off", "application_name": "tenuto"}


class Link:
    """A pool that recovers by itself and translates the driver's errors."""

    def __init__(self, url: str, *, schema: str, connections: int, timeout: float, connect_timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._connections = connections
        self._pool: asyncpg.Pool[Any] | None = None
        self.schema = schema

    async def prepare(self, *steps: Callable[[Connection, str], Awaitable[None]]) -> None:
        """Run what must be done before the pool opens, on a connection that is closed again.

        Types that a migration makes are then known to every connection of the pool.
        """
        try:
            connection = await self.connect()
        except DRIVER_ERRORS as exc:
            raise Unavailable(STORE) from exc
        try:
            for step in steps:
                await step(connection, self.schema)
        finally:
            connection.terminate()

    async def open(self) -> None:
        """Make the pool; the first connection proves that the server answers."""
        try:
            self._pool = await asyncpg.create_pool(
                min_size=1,
                max_size=self._connections,
                connect=self.connect,
                reset=_leave_as_is,
                max_inactive_connection_lifetime=0,
            )
        except DRIVER_ERRORS as exc:
            raise Unavailable(STORE) from exc

    async def connect(self, *_: Any, **__: Any) -> Connection:
        """A new connection of our own making."""
        settings = {
            **_PLANNING,
            "search_path": quoted(self.schema),
            # The server gives up before we do, so that an answer rather than a cut connection ends a long wait.
            "statement_timeout": str(int(self._timeout * 900)),
        }
        try:
            async with asyncio.timeout(self._connect_timeout):
                return await asyncpg.connect(
                    self._url, timeout=self._connect_timeout, command_timeout=self._timeout, server_settings=settings
                )
        except (ValueError, asyncpg.ClientConfigurationError) as exc:
            raise InvalidSetting("store", "not a Postgres address") from exc

    async def close(self) -> None:
        """End all connections, at once those that do not answer."""
        if self._pool is None:
            return
        pool, self._pool = self._pool, None
        try:
            async with asyncio.timeout(self._timeout):
                await pool.close()
        except DRIVER_ERRORS:
            pool.terminate()

    async def fetch(self, statement: str, *args: object) -> Sequence[Row]:
        """Run one statement, which is one transaction.

        Raises:
            Unavailable: as `_faults` tells; only `InDoubt` leaves open whether it was carried out.
        """
        async with self._lent() as connection:
            try:
                rows: Sequence[Row] = await connection.fetch(statement, *args)
            except asyncpg.InterfaceError as exc:
                # asyncpg looks before it sends; an argument it cannot encode or a closed connection ends here.
                raise fault(exc, sent=False) from telling(exc)
            except DRIVER_ERRORS as exc:
                broken = fault(exc, sent=True)
                if not isinstance(exc, asyncpg.PostgresError) or isinstance(exc, asyncpg.ReadOnlySQLTransactionError):
                    # A timeout leaves the connection busy; a standby will not become the primary.
                    connection.terminate()
                raise broken from telling(exc)
            return rows

    async def row(self, statement: str, *args: object) -> Row:
        """Run one statement that gives one row, once more where it lost against another transaction."""
        try:
            rows = await self.fetch(statement, *args)
        except Unavailable as exc:
            if not isinstance(exc.__cause__, TRANSIENT):
                raise
            rows = await self.fetch(statement, *args)
        return rows[0]

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[Lent]:
        pool = self._pool
        if pool is None:
            raise Unavailable(STORE, "is closed")
        try:
            connection = await pool.acquire(timeout=self._connect_timeout)
        except DRIVER_ERRORS as exc:
            raise fault(exc, sent=False) from exc
        try:
            yield connection
        finally:
            try:
                await pool.release(connection, timeout=self._timeout)
            except DRIVER_ERRORS as exc:
                # The answer was given; the pool has let go of the connection and will make another.
                log.debug("a connection could not be given back: %s", type(exc).__name__)


def quoted(name: str) -> str:
    """An identifier that may stand in SQL."""
    return '"' + name.replace('"', '""') + '"'


async def _leave_as_is(_: object) -> None:
    """Nothing is set on a connection beyond its transaction, so nothing is put back."""
