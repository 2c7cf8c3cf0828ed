r"""The wiring of the engine, until it replaces the stores: used where `TRY_TENUTO_ENGINE` is set.

                      sessions  traces  state  upkeep
    ProtectedStore       |        |      x      |       protected keys of task boards
    RedactingStore       x        |      x      x       the privacy policy
    Engine               x        x      x      x       rules, cache, codecs that seal
                         \________|______|_____/
    BreakerRecords                    x                 a server that stops answering is not asked for a while
    MemoryRecords, SqliteRecords, RedisRecords or PostgresRecords

Vaults and data keys are values below the encryption: `plain_state`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from tenuto.errors import StoreUnavailable, Unavailable
from tenuto.ports import Clock, Detector, Preparable, RecordStore, StateStore
from tenuto.privacy.redacting_store import RedactingStore
from tenuto.settings import Settings
from tenuto.stores.breaker import BreakerPolicy
from tenuto.stores.engine import Codecs, Engine, PlainCodecs
from tenuto.stores.engine.breaker import BreakerRecords
from tenuto.stores.engine.journal_folder import JournalFolder
from tenuto.stores.engine.sealing import SealedCodecs
from tenuto.stores.engine.state import EngineState
from tenuto.stores.factory import is_network_store, open_records
from tenuto.stores.sealed_state import has_sealed_records
from tenuto.tasks import ProtectedStore
from tenuto.wiring.privacy import open_encryption, open_screen

if TYPE_CHECKING:
    from tenuto.wiring.stores import Stores

SWITCH: Final = "TRY_TENUTO_ENGINE"
_log = logging.getLogger(__name__)
_Prepare = Callable[[], Awaitable[None]]


async def open_engine_stores(
    stack: AsyncExitStack, settings: Settings, clock: Clock, read_only: bool, detector: Detector | None, folder: Path
) -> Stores:
    """Open the records of the settings, and put the engine and the policy in front of them."""
    from tenuto.wiring.stores import Stores

    backend, first = await _open_backend(settings, folder, read_only)
    stack.push_async_callback(backend.close)
    records, circuit = backend, None
    if is_network_store(settings.store) and settings.breaker_failures:
        policy = BreakerPolicy(failures=settings.breaker_failures, reset=settings.breaker_reset)
        records = circuit = BreakerRecords(backend, now=time.monotonic, policy=policy, prepare=first)
    chance = SystemRandom()
    plain_state = EngineState(records, PlainCodecs(), chance)
    codecs: Codecs = PlainCodecs()
    ciphers = None if first else await open_encryption(settings, plain_state, clock, read_only)
    if ciphers is not None:
        codecs = SealedCodecs(ciphers, clock=clock, sealing=settings.encryption)
    has_journal = is_network_store(settings.store) and not read_only
    outage_folder = await _open_folder(stack, folder) if has_journal else None
    engine = Engine(
        records,
        clock=clock,
        chance=chance,
        codecs=codecs,
        folder=outage_folder,
        max_sessions=settings.l1_sessions,
        max_bytes=settings.l1_bytes,
    )
    is_cached = settings.l1 and records.feed is not None
    engine.sessions.serves_reads = is_cached
    if is_cached or has_journal:
        await stack.enter_async_context(engine)
    journal = engine.sessions.journal
    if journal is not None:
        task = asyncio.create_task(journal.run(), name="tenuto journal")
        stack.push_async_callback(_cancel, task)
    screen = open_screen(stack, settings, state=plain_state, sessions=engine.sessions, clock=clock, detector=detector)
    trusted = RedactingStore(store=engine, screen=screen)
    return Stores(
        backend=backend,  # type: ignore[arg-type]
        plain_state=plain_state,
        unredacted=engine,
        circuit=circuit,
        cache=engine.cache if is_cached else None,
        elsewhere=engine.elsewhere if is_cached else None,
        journal=journal,
        journal_folder=folder,
        redactor=screen,
        trusted=trusted,
        front=ProtectedStore(store=trusted, policy=settings.policies().tasks),
    )


async def _open_backend(settings: Settings, folder: Path, read_only: bool) -> tuple[RecordStore, _Prepare | None]:
    """Open the backend; for one that is down also what must be done first once it is back.

    Raises:
        Unavailable: it does not answer, and no turns wait for it in the journal.
    """
    open_now = partial(open_records, settings.store, synchronous=settings.sqlite_synchronous, read_only=read_only)
    try:
        return await open_now(), None
    except StoreUnavailable:
        if read_only or not settings.breaker_failures or not _may_begin_away(settings, folder):
            raise
    _log.warning("the store does not answer: starting with the turns in the journal")
    backend = await open_now(prepare=False)
    return backend, partial(_prepare, backend)


async def _open_folder(stack: AsyncExitStack, path: Path) -> JournalFolder:
    from tenuto.stores.engine.journal_files import DiskFolder

    folder = await DiskFolder.open(path)
    stack.push_async_callback(folder.close)
    return folder


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


def _may_begin_away(settings: Settings, folder: Path) -> bool:
    """Whether journaled turns wait that can be read; the keys of sealed ones are in the store."""
    from tenuto.stores.engine.journal_files import count_journal

    sealed = settings.encryption or settings.privacy_key is not None or settings.privacy_key_file is not None
    return not sealed and count_journal(folder).waiting > 0


async def _prepare(backend: RecordStore) -> None:
    """Do what opening the backend does otherwise."""
    if isinstance(backend, Preparable):
        await backend.prepare()
    state: StateStore = EngineState(backend, PlainCodecs(), SystemRandom())
    if await has_sealed_records(state):
        raise Unavailable("session store", "holds encrypted records: restart with the key that decrypts them")


def uses_engine() -> bool:
    """Whether the engine is asked for."""
    return SWITCH in os.environ
