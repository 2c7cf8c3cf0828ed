"""Stores that do not answer, are full or damaged, and stored values that cannot be read."""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from tenuto.errors.families import Unavailable


class StoreUnavailable(Unavailable):
    """The store's server does not answer; the call may have been carried out."""

    def __init__(self, what: str = "session store", why: str = "does not answer") -> None:
        super().__init__(what, why)


class SessionElsewhere(StoreUnavailable):
    """Another process may hold journaled turns of the session; nothing was carried out."""

    retry_after: ClassVar[timedelta] = timedelta(seconds=1)

    def __init__(self) -> None:
        super().__init__("session", "may have turns that another process has not stored yet")


class CircuitOpen(StoreUnavailable):
    """The circuit breaker rejects calls after several failures in a row; nothing was carried out."""

    code: ClassVar[str] = "circuit_open"

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__(why="has stopped answering; calls are rejected for a while")
        self.retry_after = retry_after


class StoreRejected(Unavailable):
    """The store refused the request, as for a value out of range or a lock; nothing of it was stored."""


class StoreFull(Unavailable):
    """The store is full; nothing of the request was stored."""

    code: ClassVar[str] = "store_full"

    def __init__(self) -> None:
        super().__init__("session store", "has no space left")


class StoreReadOnly(Unavailable):
    """The store can be read but not written."""

    code: ClassVar[str] = "store_read_only"

    def __init__(self) -> None:
        super().__init__("session store", "is read-only")


class StoreDamaged(Unavailable):
    """The store's files are damaged; `tenuto doctor` says where, and a backup is needed."""

    code: ClassVar[str] = "store_damaged"
    retry_after: ClassVar[None] = None

    def __init__(self) -> None:
        super().__init__("session store", "is damaged; tenuto doctor says more")


class StoreReplaced(Unavailable):
    """The store's file was deleted, moved or replaced while it was open: what is written would be lost."""

    code: ClassVar[str] = "store_replaced"
    retry_after: ClassVar[None] = None

    def __init__(self) -> None:
        why = "was deleted or replaced while it was open; put its file back (a restart begins with what is there now)"
        super().__init__("session store", why)


class StateCorrupt(Unavailable):
    """A stored value cannot be decoded; others beside it can."""

    code: ClassVar[str] = "state_corrupt"
    retry_after: ClassVar[None] = None


class DecryptionFailed(Unavailable):
    """A record was encrypted with a key that is missing, or was changed or moved later; it stays stored."""

    code: ClassVar[str] = "decryption_failed"

    def __init__(self, why: str) -> None:
        super().__init__("encrypted record", why)


class MasterKeyMissing(DecryptionFailed):
    """The key ring lacks the master key of a record; with the key the record can be read again."""

    def __init__(self, fingerprint: str) -> None:
        super().__init__(f"needs a master key that the key ring does not have, with the fingerprint {fingerprint}")
        self.fingerprint = fingerprint


class DataKeysDamaged(DecryptionFailed):
    """The stored keys of a tenant were changed: only a backup of them opens the encrypted records."""

    def __init__(self, tenant: str) -> None:
        super().__init__("cannot be opened: the tenant's data keys were changed in the store, or are another tenant's")
        self.tenant = tenant
