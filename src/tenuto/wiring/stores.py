"""The wiring of stores: the wrappers between the rooms and the backend of the settings.

                           sessions  traces  state  upkeep
    ProtectedStore             |       |       x      |      protected keys of task boards
    RedactingStore             x       |       x      x      the privacy policy
    JournaledStore             x       x       |      x      outages of a server: turns wait on disk and are replayed
    CachedStore                x       |       |      x      the session cache, coherent by the backend's change feed
    EncryptedStore             x       x       x      |      encryption at rest, where there is a key
    CircuitBreakerStore        x       x       x      x      a server that stops answering is not asked for a while
                               |       |       |      |
    MemoryStore, SqliteStore, RedisStore or PostgresStore

A wrapper changes the ports marked `x` and hands on the others. The journal and the breaker stand before servers only.
Vaults and data keys are read below the encryption, from the breaker or the backend itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from tenuto.errors import StoreUnavailable, Unavailable
from tenuto.ports import (
    Backend,
    CacheCounts,
    Clock,
    Detector,
    ElsewhereFeed,
    OmitsKnown,
    Preparable,
    Sharded,
    StateStore,
    Store,
)
from tenuto.privacy.redacting_store import RedactingStore
from tenuto.privacy.redactor import Redactor
from tenuto.settings import DEFAULT_STORE, Settings
from tenuto.stores.breaker import BreakerPolicy, CircuitState
from tenuto.stores.cached import CachedStore, SessionFeed
from tenuto.stores.circuit_breaker import CircuitBreakerStore
from tenuto.stores.encrypted import EncryptedStore
from tenuto.stores.factory import is_network_store, open_store, place_of, sqlite_path
from tenuto.stores.sealed_state import has_sealed_records
from tenuto.tasks import ProtectedStore
from tenuto.wiring.engine_stores import open_engine_stores, uses_engine
from tenuto.wiring.privacy import open_encryption, open_screen

if TYPE_CHECKING:
    from tenuto.stores.engine.journal import Journal
    from tenuto.stores.journaled import JournaledStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stores:
    """The store in use, `front`, and what is behind it.

    `trusted` changes protected keys as well, `unredacted` lies below the privacy policy, and `plain_state` below the
    encryption: vaults and data keys are there. Without a cache, breaker or journal these are `None`.
    """

    backend: Backend
    plain_state: StateStore
    unredacted: Store
    circuit: CircuitState | None
    cache: CacheCounts | None
    elsewhere: ElsewhereFeed | None
    journal: JournaledStore | Journal | None
    journal_folder: Path
    redactor: Redactor
    trusted: RedactingStore
    front: Store

    @property
    def unavailable(self) -> bool:
        """Whether the store, or a part of it, does not answer, by recent calls."""
        if self.circuit is not None and not self.circuit.closed:
            return True
        return self.journal is not None and self.journal.status.away

    @property
    def writable_journal(self) -> JournaledStore | Journal | None:
        """The journal, if its folder can be written."""
        return self.journal if writable(self.journal_folder) else None


async def open_stores(
    stack: AsyncExitStack, settings: Settings, clock: Clock, read_only: bool, detector: Detector | None = None
) -> Stores:
    """Open the backend of the settings and put the wrappers in front of it, in the order drawn above."""
    folder = journal_folder(settings)
    if settings.store == DEFAULT_STORE and not read_only:
        # Where it cannot be made, opening the file below it says so.
        with suppress(OSError):
            sqlite_path(settings.store).parent.mkdir(exist_ok=True)
    if uses_engine():
        return await open_engine_stores(stack, settings, clock, read_only, detector, folder)
    backend, first = await _backend(settings, folder, clock, read_only)
    stack.push_async_callback(backend.close)
    feed, on_server = backend.feed, is_network_store(settings.store)
    guard: CircuitBreakerStore | None = None
    if on_server and settings.breaker_failures:
        policy = BreakerPolicy(failures=settings.breaker_failures, reset=settings.breaker_reset)
        guard = CircuitBreakerStore(store=backend, policy=policy, first=first)
        stack.push_async_callback(guard.circuit.close)
    known: Store = guard or backend
    store, ciphers = known, None if first else await open_encryption(settings, known.state, clock, read_only)
    if ciphers is not None:
        store = EncryptedStore(store=store, ciphers=ciphers, sealing=settings.encryption)
    l1: CachedStore | None = None
    journals = on_server and not read_only
    if feed is not None and (settings.l1 or journals):
        l1 = CachedStore(
            store=store,
            feed=feed,
            clock=clock,
            max_sessions=settings.l1_sessions,
            max_bytes=settings.l1_bytes,
            serves_reads=settings.l1,
            names_known=isinstance(backend, OmitsKnown) and backend.omits_known,
        )
        store = await stack.enter_async_context(l1)
    journal: JournaledStore | None = None
    if l1 is not None and journals:
        # Imports the memory store, too, which file backends do without.
        from tenuto.stores.journaled import JournaledStore, Outbox

        outbox = await Outbox.open(folder)
        stack.push_async_callback(outbox.close)
        sealers = ciphers if settings.encryption else None
        journal = JournaledStore(
            store=l1,
            outbox=outbox,
            ciphers=sealers,
            clock=clock,
            probe=guard.circuit.probe if guard is not None else None,
            sharded=isinstance(backend, Sharded) and backend.sharded,
        )
        store = await stack.enter_async_context(journal)
    screen = open_screen(stack, settings, state=known.state, sessions=known.sessions, clock=clock, detector=detector)
    trusted = RedactingStore(store=store, screen=screen)
    return Stores(
        backend=backend,
        plain_state=backend.state,
        unredacted=store,
        circuit=guard.circuit if guard is not None else None,
        cache=l1.sessions if l1 is not None else None,
        elsewhere=SessionFeed(l1.feed) if l1 is not None else None,
        journal=journal,
        journal_folder=folder,
        redactor=screen,
        trusted=trusted,
        front=ProtectedStore(store=trusted, policy=settings.policies().tasks),
    )


def writable(folder: Path) -> bool:
    """Whether this process may write into the folder."""
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def journal_folder(settings: Settings) -> Path:
    """The folder of this store's journal; each store has its own, so that turns never go to another one."""
    return settings.journals() / sha256(place_of(settings.store).encode()).hexdigest()[:16]


async def _backend(
    settings: Settings, folder: Path, clock: Clock, read_only: bool
) -> tuple[Backend, Callable[[], Awaitable[None]] | None]:
    """Open the backend; for one that is down also what must be done first once it is back.

    Raises:
        Unavailable: it does not answer, and no turns wait for it in the journal.
    """
    open_now = partial(
        open_store, settings.store, clock=clock, sqlite_synchronous=settings.sqlite_synchronous, read_only=read_only
    )
    try:
        return await open_now(), None
    except StoreUnavailable:
        if read_only or not settings.breaker_failures or not _may_begin_away(settings, folder):
            raise
    log.warning("the store does not answer: starting with the turns in the journal")
    backend = await open_now(prepare=False)
    return backend, partial(_prepare, backend)


def _may_begin_away(settings: Settings, folder: Path) -> bool:
    """Whether journaled turns wait that can be read; the keys of sealed ones are in the store."""
    from tenuto.stores.journaled import count_journal

    sealed = settings.encryption or settings.privacy_key is not None or settings.privacy_key_file is not None
    return not sealed and count_journal(folder).waiting > 0


async def _prepare(backend: Backend) -> None:
    """Do what opening the backend does otherwise."""
    if isinstance(backend, Preparable):
        await backend.prepare()
    if await has_sealed_records(backend.state):
        raise Unavailable("session store", "holds encrypted records: restart with the key that decrypts them")
