"""The port of a whole store: sessions, traces and state over the same records, and their upkeep."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from tenuto.model import CompactionResult, EraseResult, RemovedSession, Scope, SessionStats
from tenuto.ports.sessions import SessionStore, TraceStore
from tenuto.ports.state import StateStore


class StoreUpkeep(Protocol):
    """Maintenance of a store, off the request path."""

    async def sweep(self, limit: int = 1000) -> tuple[RemovedSession, ...]:
        """Remove up to `limit` expired sessions of all tenants and return them."""
        ...

    async def evict(self, scope: Scope, keep: int, keep_session: str | None = None) -> tuple[RemovedSession, ...]:
        """Remove the site's least recently changed sessions beyond `keep`, of all owners.

        Sessions whose turn runs stay, also if the site then keeps more. The session `keep_session` stays, even if a
        wrong clock makes it look old.
        """
        ...

    async def index_words(self) -> int:
        """Index the words of sessions that this process has written and that are idle; how many.

        A search needs none of it: it indexes what it reaches.
        """
        ...

    async def index_all(self) -> tuple[int, int]:
        """Index the words of all sessions of all tenants that are not; how many are now, and how many were left since
        they could not be changed. Where the search is off, take away what is indexed."""
        ...

    async def erase(self, scope: Scope, limit: int = 100) -> EraseResult:
        """Remove data of the scope's user on that site: up to `limit` sessions, then all of the user's state.

        Also quarantined records whose owner is known. Call again until `EraseResult.more` is false.

        Raises:
            Invalid: the scope names no user.
        """
        ...

    async def list_sites(self, after: Scope | None = None, limit: int = 100) -> tuple[Scope, ...]:
        """The tenants' sites that hold sessions, or state of users or chats, in order of `site_key` after `after`.

        Across all tenants: for maintenance, never for a request. A page that is not full is the last one. A site whose
        sessions have all expired may be among them until it is swept.
        """
        ...

    async def compact(self) -> CompactionResult:
        """Remove deleted bytes from the files of the backend, and report what could not be removed.

        Raises:
            Unavailable: the store is busy or unavailable; a retry may succeed.
        """
        ...

    async def stats(self, scope: Scope) -> SessionStats:
        """Totals of the sessions that the scope reaches: its owner's, or all of the site for the tenant itself."""
        ...

    async def ping(self) -> None:
        """Return if the store answers.

        Raises:
            Unavailable: it does not.
        """
        ...


class Store(Protocol):
    """Four ports over the same records: a backend, or a wrapper, which replaces only the ports it changes."""

    @property
    def sessions(self) -> SessionStore:
        """Sessions and their messages."""
        ...

    @property
    def traces(self) -> TraceStore:
        """Traces of turns."""
        ...

    @property
    def state(self) -> StateStore:
        """Small JSON values."""
        ...

    @property
    def upkeep(self) -> StoreUpkeep:
        """Expiry, erasure, statistics."""
        ...


class ElsewhereFeed(Protocol):
    """Tells which sessions other processes have changed, by `session_key`; `None` means that any may have changed."""

    def watch(self, on_change: Callable[[bytes | None], None]) -> AbstractAsyncContextManager[None]:
        """While open, call `on_change` with each session; a change of this process may be told as well."""
        ...

    def look(self) -> bool:
        """Tell, without waiting, what has arrived: some backends tell only when they are asked. False if changes may
        be missing."""
        ...


class CacheCounts(Protocol):
    """What the session cache tells: sessions (`len`), approximate bytes, reads that it answered and passed on."""

    hits: int
    misses: int

    @property
    def held_bytes(self) -> int: ...

    def __len__(self) -> int: ...
