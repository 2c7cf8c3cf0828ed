"""The wiring of stores: what stands between those who use one and the backend of the settings."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tenuto.errors import StoreAway, Unavailable
from tenuto.ports import ChangeFeed, Ciphers, Clock, Preparing, Store
from tenuto.privacy.redactor import Redactor
from tenuto.privacy.screened import Screened
from tenuto.screens import open_screen, sealed_store
from tenuto.settings import Settings
from tenuto.stores.breaker import BreakerPolicy
from tenuto.stores.by_url import on_network, open_store, place_of
from tenuto.stores.cached import Cached
from tenuto.stores.encrypted import Encrypted, holds_sealed
from tenuto.stores.guarded import Guarded

if TYPE_CHECKING:
    from tenuto.stores.journaled import Journaled

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stores:
    """The store that everybody uses, `front`, and what stands behind it."""

    backend: Store
    guard: Guarded | None
    l1: Cached | None
    journal: Journaled | None
    journal_folder: Path
    screen: Redactor
    front: Store

    @property
    def away(self) -> bool:
        """Whether the store, or a part of it, does not answer at present, as far as calls of late have shown."""
        if self.guard is not None and not self.guard.closed:
            return True
        return self.journal is not None and self.journal.state.away

    @property
    def ready_journal(self) -> Journaled | None:
        """The journal, where there is a folder that it can write into."""
        return self.journal if writable(self.journal_folder) else None


async def open_stores(stack: AsyncExitStack, settings: Settings, clock: Clock, reading_only: bool) -> Stores:
    """The store of the settings, behind its encryption, then L1 where that can be kept coherent, then privacy.

    One that is a server has a breaker before it, and behind privacy a journal of what was said while it was away.
    """
    folder = journal_folder(settings)
    backend, first = await _backend(settings, folder, clock, reading_only)
    stack.push_async_callback(backend.close)
    guard = _guard(settings, backend, first)
    known = guard or backend
    store = sealed = known if first else await sealed_store(settings, known, clock, reading_only)
    l1: Cached | None = None
    if settings.l1 and isinstance(backend, ChangeFeed):
        l1 = Cached(
            store=store, feed=backend, clock=clock, max_sessions=settings.l1_sessions, max_bytes=settings.l1_bytes
        )
        store = await stack.enter_async_context(l1)
    journal: Journaled | None = None
    if on_network(settings.store) and isinstance(backend, ChangeFeed) and not reading_only:
        sealers = sealed.sealers if isinstance(sealed, Encrypted) else None
        store = journal = await _journaled(stack, folder, store, backend, sealers, clock)
    screen = open_screen(stack, settings, known, clock)
    return Stores(
        backend=backend,
        guard=guard,
        l1=l1,
        journal=journal,
        journal_folder=folder,
        screen=screen,
        front=Screened(store=store, screen=screen),
    )


async def _journaled(
    stack: AsyncExitStack, folder: Path, store: Store, feed: ChangeFeed, sealers: Ciphers | None, clock: Clock
) -> Journaled:
    # It brings a store in memory along, which files do without.
    from tenuto.stores.journaled import Journaled, Outbox

    outbox = await Outbox.open(folder)
    stack.push_async_callback(outbox.close)
    journal = Journaled(store=store, outbox=outbox, feed=feed, ciphers=sealers, clock=clock)
    return await stack.enter_async_context(journal)


def writable(folder: Path) -> bool:
    """Whether this process may write into the folder."""
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def journal_folder(settings: Settings) -> Path:
    """Where the journal of this store lies: beside those of others, so that turns never go to another one."""
    return settings.journals() / sha256(place_of(settings.store).encode()).hexdigest()[:16]


async def _backend(
    settings: Settings, folder: Path, clock: Clock, reading_only: bool
) -> tuple[Store, Callable[[], Awaitable[None]] | None]:
    """The bare store; one that is away comes with what is to be done first when it is back.

    Raises:
        Unavailable: it does not answer, and no turns of its own wait in the journal for it.
    """
    open_now = partial(
        open_store,
        settings.store,
        clock=clock,
        sqlite_synchronous=settings.sqlite_synchronous,
        reading_only=reading_only,
    )
    try:
        return await open_now(), None
    except StoreAway:
        if reading_only or not settings.breaker_failures or not _may_begin_away(settings, folder):
            raise
    log.warning("the store is away: beginning with the turns that wait for it in the journal")
    backend = await open_now(prepared=False)
    return backend, partial(_prepare, backend)


def _may_begin_away(settings: Settings, folder: Path) -> bool:
    """Whether a talk is to be gone on with. Sealed turns cannot be opened: their keys are in the store."""
    from tenuto.stores.journaled import waiting_in

    sealed = settings.encryption or settings.privacy_key is not None or settings.privacy_key_file is not None
    return not sealed and waiting_in(folder).waiting > 0


async def _prepare(backend: Store) -> None:
    """Do what an opening does otherwise, before anything else is asked."""
    if isinstance(backend, Preparing):
        await backend.prepare()
    if await holds_sealed(backend):
        raise Unavailable("session store", "holds sealed records: start again with the key that opens them")


def _guard(settings: Settings, backend: Store, first: Callable[[], Awaitable[None]] | None) -> Guarded | None:
    """A breaker for a store that may stop answering; a file in this machine answers or fails at once."""
    if not on_network(settings.store) or not settings.breaker_failures:
        return None
    policy = BreakerPolicy(failures=settings.breaker_failures, reset=settings.breaker_reset)
    return Guarded(store=backend, policy=policy, first=first)
