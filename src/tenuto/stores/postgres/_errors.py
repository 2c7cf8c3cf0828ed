"""What a driver's error means for the caller."""

from __future__ import annotations

import asyncio
from typing import Final

import asyncpg

from tenuto.errors import StoreFull, StoreReadOnly, StoreUnavailable, Unavailable

STORE: Final = "session store"

DRIVER_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    # What asyncpg says of a connection that the server ended with a last word.
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
)

# The statement met another transaction and was undone; the same statement may succeed at once.
TRANSIENT: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


class Unsent(StoreUnavailable):
    """The request never left this process, so nothing of it was kept."""


class InDoubt(StoreUnavailable):
    """The connection was lost while the request was under way: it may have been kept."""


class RequestRejected(Unavailable):
    """The server answered with an error, and nothing of the request was kept."""


class ServerReadOnly(StoreReadOnly, RequestRejected):
    """The server takes no writes: a standby, or a primary that has become one."""


class ServerDiskFull(StoreFull, RequestRejected):
    """The server's disk is full."""


def fault(exc: BaseException, *, sent: bool) -> Unavailable:
    """The error to raise for a driver's error."""
    if isinstance(exc, asyncpg.DiskFullError):
        return ServerDiskFull()  # A connection needs room as well.
    if isinstance(exc, ValueError):
        return RequestRejected(STORE, "refused the request")  # By the driver already, which could not write it down.
    if not sent:
        return Unsent(STORE)
    match exc:
        case asyncpg.ReadOnlySQLTransactionError():
            return ServerReadOnly()
        case asyncpg.QueryCanceledError() | asyncpg.LockNotAvailableError():
            return RequestRejected(STORE, "took too long")
        # A server that shuts down or crashes says so before the connection ends; what it was doing is in doubt.
        case asyncpg.PostgresConnectionError() | asyncpg.OperatorInterventionError():
            return InDoubt(STORE)
        case asyncpg.PostgresError():
            return RequestRejected(STORE, "refused the request")
        case _:
            return InDoubt(STORE)


def telling(exc: BaseException) -> BaseException | None:
    """The cause to chain: none where the server's message could quote what a user said."""
    quoting = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError)
    return None if isinstance(exc, quoting) else exc
