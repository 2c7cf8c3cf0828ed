"""Every `RecordStore`: a new backend is one line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from tenuto.ports import RecordStore
from tenuto.stores.engine import MemoryRecords


@dataclass(frozen=True)
class RecordBackend:
    """A way to open an empty store of records."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[RecordStore]]


@asynccontextmanager
async def _memory() -> AsyncIterator[RecordStore]:
    yield MemoryRecords()


RECORD_STORES = [RecordBackend("memory", _memory)]
