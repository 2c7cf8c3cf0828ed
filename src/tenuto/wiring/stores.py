"""The wiring of stores: what lies between the rooms and the backend of the settings.

                      sessions  traces  state  upkeep
    ProtectedStore       |        |      x      |       protected keys of task boards
    RedactingStore       x        |      x      x       the privacy policy
    Engine               x        x      x      x       rules, cache, sealing; in an outage turns wait in the journal
                         |        |      |      |
    BreakerRecords       '--------x------'------'       a server that stops answering is not asked for a while
    InMemoryRecords, SqliteRecords, RedisRecords or PostgresRecords

Journal and breaker are there for servers only. Vaults and data keys are values below the encryption: `plain_state`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from tenuto.background import running
from tenuto.errors import StoreUnavailable, Unavailable
from tenuto.lazy_imports import lazy_module
from tenuto.ports import (
    CacheCounts,
    Clock,
    Detector,
    ElsewhereFeed,
    Preparable,
    RecordStore,
    StateStore,
    Store,
    TurnLogs,
)
from tenuto.privacy.redacting_store import RedactingStore
from tenuto.privacy.redactor import Redactor
from tenuto.settings import DEFAULT_STORE, Settings
from tenuto.stores.breaker import BreakerPolicy, CircuitState
from tenuto.stores.engine import Codecs, Engine, PlainCodecs
from tenuto.stores.engine.breaker_records import BreakerRecords
from tenuto.stores.engine.sealing import SealedCodecs
from tenuto.stores.engine.state import EngineState
from tenuto.stores.factory import is_network_store, open_records, place_of, sqlite_path
from tenuto.stores.sealed_state import has_sealed_records
from tenuto.tasks import ProtectedStore
from tenuto.wiring.privacy import open_encryption, open_redactor

if TYPE_CHECKING:
    from tenuto.privacy.crypto.tenant_ciphers import TenantCiphers
    from tenuto.stores.engine import journal_files
    from tenuto.stores.engine.journal import Journal
    from tenuto.stores.engine.journal_folder import JournalFolder
else:
    journal_files = lazy_module("tenuto.stores.engine.journal_files")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stores:
    """The store in use, `front`, and what is behind it.

    `unprotected` lies below the protection of task boards, `unredacted` below the privacy policy, and `plain_state`
    below the encryption: vaults and data keys are there. Without a cache, breaker or journal these are `None`.
    """

    backend: RecordStore
    plain_state: StateStore
    unredacted: Store
    circuit: CircuitState | None
    cache: CacheCounts | None
    elsewhere: ElsewhereFeed | None
    turn_logs: TurnLogs | None
    journal: Journal | None
    journal_folder: Path
    redactor: Redactor
    unprotected: RedactingStore
    front: Store

    @property
    def unavailable(self) -> bool:
        """Whether the store, or a part of it, does not answer, by recent calls."""
        if self.circuit is not None and not self.circuit.closed:
            return True
        return self.journal is not None and self.journal.status.away

    @property
    def writable_journal(self) -> Journal | None:
        """The journal, if its folder can be written."""
        return self.journal if writable(self.journal_folder) else None


async def open_stores(
    stack: AsyncExitStack, settings: Settings, clock: Clock, read_only: bool, detector: Detector | None = None
) -> Stores:
    """Open the backend of the settings, and put in front of it what is drawn above."""
    folder = journal_folder(settings)
    if settings.store == DEFAULT_STORE and not read_only:
        # Where it cannot be made, opening the file below it says so.
        with suppress(OSError):
            sqlite_path(settings.store).parent.mkdir(exist_ok=True)
    backend, records, prepare_later = await _open_records(settings, folder, read_only)
    stack.push_async_callback(records.close)
    plain_state = EngineState(records, PlainCodecs(), SystemRandom())
    # The keys of a store that is down cannot be read; one that holds sealed records is refused once it is back.
    ciphers = None if prepare_later else await open_encryption(settings, plain_state, clock, read_only)
    is_server = is_network_store(settings.store)
    engine = Engine(
        records,
        clock=clock,
        chance=SystemRandom(),
        codecs=_open_codecs(ciphers, settings, clock),
        folder=await _join_folder(stack, folder) if is_server and not read_only else None,
        tells_machines=is_server,
        searchable=settings.session_search,
        max_sessions=settings.l1_sessions,
        max_bytes=settings.l1_bytes,
    )
    is_cached = engine.sessions.serves_reads = settings.l1 and records.feed is not None
    journal = engine.sessions.journal
    listens = records.feed is not None and (is_cached or not read_only)
    if listens or journal is not None:
        await stack.enter_async_context(engine)
    if journal is not None:
        await stack.enter_async_context(running(journal.run(), "journal"))
    redactor = open_redactor(
        stack, settings, state=plain_state, sessions=engine.sessions, clock=clock, detector=detector
    )
    unprotected = RedactingStore(store=engine, redactor=redactor)
    return Stores(
        backend=backend,
        plain_state=plain_state,
        unredacted=engine,
        circuit=records if isinstance(records, BreakerRecords) else None,
        cache=engine.cache if is_cached else None,
        elsewhere=engine.elsewhere if listens else None,
        turn_logs=engine.turn_logs if listens and not read_only else None,
        journal=journal,
        journal_folder=folder,
        redactor=redactor,
        unprotected=unprotected,
        front=ProtectedStore(store=unprotected, policy=settings.policies().tasks),
    )


def _open_codecs(ciphers: TenantCiphers | None, settings: Settings, clock: Clock) -> Codecs:
    return PlainCodecs() if ciphers is None else SealedCodecs(ciphers, clock=clock, sealing=settings.encryption)


def writable(folder: Path) -> bool:
    """Whether this process may write into the folder."""
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def journal_folder(settings: Settings) -> Path:
    """The folder of this store's journal; each store has its own, so that turns never go to another one."""
    return settings.journals() / sha256(place_of(settings.store).encode()).hexdigest()[:16]


async def _open_records(
    settings: Settings, folder: Path, read_only: bool
) -> tuple[RecordStore, RecordStore, Callable[[], Awaitable[None]] | None]:
    """Open the backend; returns it, the same behind its breaker, and for one that is down what must be done first.

    Raises:
        Unavailable: it does not answer, and no turns wait for it in the journal.
    """
    open_now = partial(open_records, settings.store, synchronous=settings.sqlite_synchronous, read_only=read_only)
    prepare_later: Callable[[], Awaitable[None]] | None = None
    try:
        backend = await open_now()
    except StoreUnavailable:
        if read_only or not settings.breaker_failures or not _may_begin_away(settings, folder):
            raise
        log.warning("the store does not answer: starting with the turns in the journal")
        backend = await open_now(prepare=False)
        prepare_later = partial(_prepare_backend, backend)
    if not (is_network_store(settings.store) and settings.breaker_failures):
        return backend, backend, prepare_later
    policy = BreakerPolicy(failures=settings.breaker_failures, reset=settings.breaker_reset)
    return backend, BreakerRecords(backend, now=time.monotonic, policy=policy, prepare=prepare_later), prepare_later


async def _join_folder(stack: AsyncExitStack, path: Path) -> JournalFolder | None:
    """The folder of the journal, which the processes of this machine share; none if it cannot be used."""
    try:
        folder = await journal_files.DiskFolder.open(path)
    except Unavailable as error:
        log.warning("turns are refused while the store does not answer: %s", error)
        return None
    stack.push_async_callback(folder.close)
    return folder


def _may_begin_away(settings: Settings, folder: Path) -> bool:
    """Whether journaled turns wait that can be read; the keys of sealed ones are in the store."""
    sealed = settings.encryption or settings.privacy_key is not None or settings.privacy_key_file is not None
    return not sealed and journal_files.count_journal(folder).waiting > 0


async def _prepare_backend(backend: RecordStore) -> None:
    """Do, once the server answers, what opening the backend does otherwise."""
    if isinstance(backend, Preparable):
        await backend.prepare()
    state: StateStore = EngineState(backend, PlainCodecs(), SystemRandom())
    if await has_sealed_records(state):
        raise Unavailable("session store", "holds encrypted records: restart with the key that decrypts them")
