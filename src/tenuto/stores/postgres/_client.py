"""Connections to one database: few, shared, with a deadline on every call."""

from __future__ import annotations

import asyncio
import logging
import select
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

import asyncpg

from tenuto.errors import InvalidSetting, Unavailable
from tenuto.stores.postgres._errors import DRIVER_ERRORS, STORE, TRANSIENT, Unsent, fault, telling
from tenuto.stores.sockets import reset_on_close

log = logging.getLogger(__name__)

# asyncpg's rows are untyped; they become values in `_rows`.
Row: TypeAlias = asyncpg.Record
Connection: TypeAlias = "asyncpg.Connection[Any]"

_SETTINGS: Final = {
    "application_name": "tenuto",
    # Statements are short and by key. Planning or compiling one costs more than running it, and the planner would scan
    # tables that have no statistics yet.
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    # A dead client's locks are released within twenty seconds.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "3",
    "tcp_keepalives_count": "3",
}


_LONG: Final = 24 * 3600.0


class ConnectionPool:
    """A few connections, opened on demand; translates the driver's errors.

    asyncpg's own pool takes twice the time of a small statement for acquire and release.
    """

    def __init__(self, url: str, *, schema: str, connections: int, timeout: float, connect_timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._slots = asyncio.Semaphore(connections)
        self._idle: list[tuple[Connection, Callable[[], bool]]] = []
        self._closed = False
        self.schema = schema
        self.timeout = timeout + connect_timeout
        """Seconds that a call may take: to get a connection, and to get the reply."""

    async def prepare(self, *steps: Callable[[Connection, str], Awaitable[None]]) -> None:
        """Run steps before the first call, on a connection of their own: later ones see types that a migration made."""
        try:
            connection = await self.connect()
        except DRIVER_ERRORS as exc:
            raise fault(exc, sent=False) from exc
        try:
            for step in steps:
                await step(connection, self.schema)
        finally:
            connection.terminate()

    async def connect(self) -> Connection:
        """Open a connection with our settings."""
        settings = {
            **_SETTINGS,
            "search_path": quote_identifier(self.schema),
            # The server times out before the client, so that a long wait ends with a reply. Locks time out after half
            # of that: the other calls of the batch have time for a retry.
            "statement_timeout": str(int(self._timeout * 900)),
            "lock_timeout": str(int(self._timeout * 450)),
        }
        try:
            async with asyncio.timeout(self._connect_timeout):
                return await asyncpg.connect(
                    self._url, timeout=self._connect_timeout, command_timeout=self._timeout, server_settings=settings
                )
        except (ValueError, asyncpg.ClientConfigurationError) as exc:
            raise InvalidSetting("store", "not a Postgres address") from exc

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        idle, self._idle = self._idle, []
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.gather(*(connection.close() for connection, _ in idle))
        except DRIVER_ERRORS:
            for connection, _ in idle:
                connection.terminate()

    async def fetch(self, statement: str, *args: object) -> Sequence[Row]:
        """Run one statement, which is one transaction.

        Raises:
            Unavailable: see `_errors`; only after `InDoubt` it may have been carried out.
        """
        connection = await self.acquire()
        rows = await self.fetch_on(connection, statement, *args)
        self.release(connection, sound=True)
        return rows

    async def fetch_on(self, connection: Connection, statement: str, *args: object) -> Sequence[Row]:
        """Run one statement on a connection of `acquire`, which is released if that fails. Raises as `fetch`."""
        sound = has_answer = False
        try:
            rows: Sequence[Row] = await connection.fetch(statement, *args)
            has_answer = True
            return rows
        except asyncpg.InterfaceError as exc:
            # Raised before sending: a closed connection, or an argument that asyncpg cannot encode.
            raise fault(exc, sent=False) from telling(exc)
        except DRIVER_ERRORS as exc:
            # A standby will not become the primary; a timeout leaves the connection busy.
            sound = isinstance(exc, asyncpg.PostgresError) and not isinstance(exc, asyncpg.ReadOnlySQLTransactionError)
            raise fault(exc, sent=True) from telling(exc)
        finally:
            if not has_answer:
                self.release(connection, sound=sound)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection in a transaction of several statements, committed at the end.

        Raises:
            Unavailable: as in `fetch`.
        """
        connection = await self.acquire()
        sound = False
        try:
            async with connection.transaction():
                yield connection
            sound = True
        except DRIVER_ERRORS as exc:
            raise fault(exc, sent=True) from telling(exc)
        finally:
            self.release(connection, sound=sound)

    async def run_long(self, statement: str) -> bool:
        """Run a long statement on a connection of its own, outside any transaction.

        Logs the server's warnings, such as a skipped table of another owner; returns whether there were any.

        Raises:
            Unavailable: as in `fetch`.
        """
        try:
            connection = await self.connect()
        except DRIVER_ERRORS as exc:
            raise fault(exc, sent=False) from exc
        try:
            warnings: list[str] = []
            connection.add_log_listener(lambda _, notice: warnings.append(notice.message))
            await connection.execute("SET statement_timeout = 0")
            await connection.execute(statement, timeout=_LONG)
            for warning in warnings:
                log.warning("warning of the server: %s", warning)
            return bool(warnings)
        except DRIVER_ERRORS as exc:
            raise fault(exc, sent=True) from telling(exc)
        finally:
            connection.terminate()

    async def fetch_row(self, statement: str, *args: object) -> Row:
        """Run a statement that returns one row; retried once after a deadlock or serialization failure."""
        try:
            rows = await self.fetch(statement, *args)
        except Unavailable as exc:
            if not isinstance(exc.__cause__, TRANSIENT):
                raise
            rows = await self.fetch(statement, *args)
        return rows[0]

    async def acquire(self) -> Connection:
        """A connection for statements in a row; to be given back by `release`. Raises `Unavailable`."""
        if self._closed:
            raise Unavailable(STORE, "is closed")
        until = asyncio.get_running_loop().time() + self._connect_timeout
        try:
            if self._slots.locked():
                async with asyncio.timeout_at(until):
                    await self._slots.acquire()
            else:
                await self._slots.acquire()
        except TimeoutError as exc:
            raise Unsent(STORE, "is overloaded") from exc
        try:
            while self._idle:
                connection, has_unread = self._idle.pop()
                # Unread bytes on an idle connection mean that the server closed it.
                if not connection.is_closed() and not has_unread():
                    return connection
                connection.terminate()
            async with asyncio.timeout_at(until):
                return await self.connect()
        except BaseException as exc:
            self._slots.release()
            if isinstance(exc, DRIVER_ERRORS):
                raise fault(exc, sent=False) from exc
            raise

    def release(self, connection: Connection, *, sound: bool) -> None:
        """Give a connection back; one that is not `sound` is closed."""
        self._slots.release()
        if sound and not connection.is_closed() and not self._closed:
            self._idle.append((connection, unread(connection)))
        else:
            reset_on_close(getattr(connection, "_transport", None))
            connection.terminate()


def quote_identifier(name: str) -> str:
    """A quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def unread(connection: Connection) -> Callable[[], bool]:
    """A check, within a microsecond, for bytes on the connection's socket that the loop has not read yet."""
    # asyncpg has no public access to its socket. Without it a busy loop only notices later.
    transport = getattr(connection, "_transport", None)
    socket = transport.get_extra_info("socket") if transport is not None else None
    if socket is None or not hasattr(select, "poll"):
        return lambda: False
    poll = select.poll()
    poll.register(socket.fileno(), select.POLLIN)
    return lambda: bool(poll.poll(0))
