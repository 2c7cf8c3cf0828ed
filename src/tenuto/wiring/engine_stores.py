"""The wiring of the engine, until it replaces the stores: memory and SQLite, where `TRY_TENUTO_ENGINE` is set."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from random import SystemRandom
from typing import TYPE_CHECKING, Final

from tenuto.ports import Clock, Detector, RecordStore
from tenuto.privacy.redacting_store import RedactingStore
from tenuto.settings import Settings
from tenuto.stores.engine import Engine, MemoryRecords
from tenuto.stores.factory import is_network_store, sqlite_path
from tenuto.tasks import ProtectedStore
from tenuto.wiring.privacy import open_screen

if TYPE_CHECKING:
    from pathlib import Path

    from tenuto.wiring.stores import Stores

SWITCH: Final = "TRY_TENUTO_ENGINE"


def uses_engine(settings: Settings) -> bool:
    """Whether the engine is asked for, and has such a backend."""
    return SWITCH in os.environ and not is_network_store(settings.store) and not settings.encryption


async def open_engine_stores(
    stack: AsyncExitStack, settings: Settings, clock: Clock, read_only: bool, detector: Detector | None, folder: Path
) -> Stores:
    """Open the records of the settings and put the engine and the policy in front of them."""
    from tenuto.wiring.stores import Stores

    records = await _open_records(settings, read_only)
    engine = Engine(
        records, clock=clock, chance=SystemRandom(), max_sessions=settings.l1_sessions, max_bytes=settings.l1_bytes
    )
    stack.push_async_callback(records.close)
    cached = settings.l1 and records.feed is not None
    if cached:
        await stack.enter_async_context(engine)
    screen = open_screen(stack, settings, engine, clock, detector)
    trusted = RedactingStore(store=engine, screen=screen)
    return Stores(
        backend=records,  # type: ignore[arg-type]
        plain_state=engine.state,
        unredacted=engine,
        circuit=None,
        cache=engine.cache if cached else None,
        elsewhere=engine.elsewhere if cached else None,
        journal=None,
        journal_folder=folder,
        redactor=screen,
        trusted=trusted,
        front=ProtectedStore(store=trusted, policy=settings.policies().tasks),
    )


async def _open_records(settings: Settings, read_only: bool) -> RecordStore:
    if settings.store.startswith("memory"):
        return MemoryRecords()
    from tenuto.stores.engine.sqlite_records import SqliteRecords

    return await SqliteRecords.open(
        sqlite_path(settings.store),
        synchronous=settings.sqlite_synchronous,  # type: ignore[arg-type]
        read_only=read_only,
    )
