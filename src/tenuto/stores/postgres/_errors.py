"""The driver's errors as ours."""

from __future__ import annotations

import asyncio
from typing import Final

import asyncpg

from tenuto.errors import StoreDamaged, StoreFull, StoreReadOnly, StoreRejected, StoreUnavailable, Unavailable

STORE: Final = "session store"

DRIVER_ERRORS: Final = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    # Raised by asyncpg for a connection that the server ended with a message.
    asyncpg.InternalClientError,
    OSError,
    asyncio.TimeoutError,
)

# The statement conflicted with another transaction and was rolled back; a retry may succeed at once.
TRANSIENT: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


class Unsent(StoreUnavailable):
    """The request was not sent, so nothing of it was stored."""


class InDoubt(StoreUnavailable):
    """The connection was lost during the request: it may have been stored."""


class ServerReadOnly(StoreReadOnly, StoreRejected):
    """The server takes no writes: a standby, or a primary that has become one."""


class ServerDiskFull(StoreFull, StoreRejected):
    """The server's disk is full."""


class ServerDamaged(StoreDamaged, StoreRejected):
    """The server found a damaged page or index."""


def fault(exc: BaseException, *, sent: bool) -> Unavailable:
    """The error to raise for a driver's error."""
    if isinstance(exc, asyncpg.DiskFullError):
        return ServerDiskFull()  # Opening a connection may need disk space, too.
    if isinstance(exc, ValueError):
        return StoreRejected(STORE, "refused the request")  # The driver could not encode it.
    if not sent:
        return Unsent(STORE, _refusal(exc))
    match exc:
        case asyncpg.ReadOnlySQLTransactionError():
            return ServerReadOnly()
        case asyncpg.DataCorruptedError() | asyncpg.IndexCorruptedError():
            return ServerDamaged()
        case asyncpg.QueryCanceledError() | asyncpg.LockNotAvailableError():
            return StoreRejected(STORE, "took too long")
        # A server that shuts down or crashes reports that before the connection ends.
        case asyncpg.PostgresConnectionError() | asyncpg.OperatorInterventionError():
            return InDoubt(STORE)
        case asyncpg.PostgresError():
            return StoreRejected(STORE, "refused the request")
        case _:
            return InDoubt(STORE)


def _refusal(exc: BaseException) -> str:
    """Why there is no connection; a server that refuses a login does answer."""
    match exc:
        case asyncpg.InvalidCatalogNameError():
            return "refuses the login: it has no such database"
        case asyncpg.InvalidAuthorizationSpecificationError():
            return "refuses the login: check user and password"
        case asyncpg.InsufficientPrivilegeError():
            return "refuses the login: the user may not connect to this database"
        case _:
            return "does not answer"


def telling(exc: BaseException) -> BaseException | None:
    """The cause to chain: none if the server's message could quote user data."""
    quoting = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, ValueError)
    return None if isinstance(exc, quoting) else exc
