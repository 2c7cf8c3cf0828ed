"""The port of a backend: records as bytes. Abilities that only some backends have are ports of their own."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

from tenuto.model import CompactionResult, Scope
from tenuto.model.store_reports import DurabilityFinding
from tenuto.model.stored import (
    AsideRecords,
    EntryPage,
    FoundRecord,
    IndexColumns,
    IndexQuery,
    Known,
    Part,
    RecordChange,
    Refused,
    StoredRecord,
    Totals,
)


class RecordStore(Protocol):
    """Stores records: bytes, a revision to compare, and index columns. Everything else is decided above.

    A load is of one moment. A commit is made as a whole or not at all, and after that every load and list shows it.
    Each call ends within the deadline of the backend. A call that raises `Unavailable` may be carried out later, except
    for `CircuitOpen`, `StoreRejected`, `StoreFull` and `StoreReadOnly`. Calls that return a future are sent before they
    return, and cancelling the future changes nothing.
    """

    @property
    def feed(self) -> RecordFeed | None:
        """Reports changes by other processes; `None` if no other process can access the records."""
        ...

    def load(self, key: bytes, tail: int, known: Known | None = None) -> Future[StoredRecord | None]:
        """A record with its newest messages, at most `tail`; with `known` without those the caller holds."""
        ...

    def commit(self, changes: Sequence[RecordChange]) -> Future[Refused | None]:
        """Make all changes, or none if a record is at another revision than expected.

        All are of one site, and their keys begin with the same `KEY_GROUP` bytes.
        """
        ...

    def page(self, key: bytes, part: Part, first: int, last: int, limit: int) -> Future[EntryPage]:
        """Entries numbered `first` to `last` in order; with a negative `limit` the last ones, still in order.

        They are of one moment, that of the revision in the answer.
        """
        ...

    def touch(self, key: bytes, deadline: int) -> Future[None]:
        """Move a record's deadline to this one if that is later. The revision stays, and no feed reports it."""
        ...

    async def load_all(self, keys: Sequence[bytes]) -> tuple[StoredRecord | None, ...]:
        """Records, perhaps without entries; those whose keys begin with the same `KEY_GROUP` bytes at one moment."""
        ...

    async def list(self, query: IndexQuery) -> tuple[FoundRecord, ...]:
        """Records by their index columns; one that is changed meanwhile may be missing."""
        ...

    async def totals(self, space: bytes, owner: bytes | None, now: int) -> Totals:
        """The sums over the sessions of a site, or of one owner there, that have not expired."""
        ...

    async def sites(self, after: bytes, limit: int) -> tuple[Scope, ...]:
        """Owners' scopes, one for each site that holds sessions or named values, in order of `space`."""
        ...

    async def scan(self, after: bytes, limit: int) -> tuple[FoundRecord, ...]:
        """All records of all tenants in order of their keys, to copy a store; never for a request."""
        ...

    async def list_aside(self) -> tuple[IndexColumns, ...]:
        """The columns of all records of all tenants that were set aside as unreadable; never for a request."""
        ...

    async def forget_aside(self, owner: bytes) -> AsideRecords:
        """Remove the records of an owner that were set aside as unreadable, and count them."""
        ...

    async def compact(self) -> CompactionResult:
        """Remove deleted bytes from the files of the backend, and report what could not be removed."""
        ...

    async def ping(self) -> None:
        """Return if the store answers.

        Raises:
            Unavailable: it does not.
        """
        ...

    async def close(self) -> None:
        """Release files and connections."""
        ...


class RecordFeed(Protocol):
    """Reports changes of records, with the revision that a change led to; 0 for a removal.

    `UNKNOWN_REVISION` is reported for either where the feed does not know it. Several changes of a record may be told
    as one, own ones as well, and late; a removal is always told. A cache drops a record only if it knows an older
    revision, so it need not know whose a change was.
    """

    def caught_up(self) -> bool:
        """Report, without waiting, all changes acknowledged anywhere up to now; false if some may be missing."""
        ...

    def watch(self, on_change: Callable[[bytes | None, int], None]) -> AbstractAsyncContextManager[None]:
        """While open, call `on_change` with each key and revision; `None` means that anything may have changed."""
        ...


@runtime_checkable
class DurabilityReport(Protocol):
    """A store on a server whose settings decide how durable acknowledged writes are."""

    async def durability_findings(self) -> tuple[DurabilityFinding, ...]:
        """What those settings mean, as far as the server reports them.

        Raises:
            Unavailable: the server does not answer.
        """
        ...


@runtime_checkable
class Versioned(Protocol):
    """A store that knows the product behind it."""

    async def product_version(self) -> str:
        """Name and version, such as `PostgreSQL 17.2`; the name alone if the server does not tell.

        Raises:
            Unavailable: the server does not answer.
        """
        ...


@runtime_checkable
class Preparable(Protocol):
    """A store that can be opened before its server answers; other calls must wait for `prepare`."""

    async def prepare(self) -> None:
        """Check that the server answers with a schema this release can use, or migrate it.

        Raises:
            Unavailable: it does not.
        """
        ...
